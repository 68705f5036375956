"""How far a search is can be read at any moment."""

from pathlib import Path
from uuid import uuid4

from api.jobs.progress import ProgressFiles
from planner.planning import Progress

SEARCHING = Progress(best_seconds=None, lower_bound_seconds=1.5, meshes_left=10, meshes_total=12)


def test_the_newest_progress_is_read(tmp_path: Path) -> None:
    files, request_id = ProgressFiles(folder=tmp_path), uuid4()
    assert files.read(request_id) is None
    write = files.writer(request_id)
    write(SEARCHING)
    write(Progress(best_seconds=2.0, lower_bound_seconds=1.5, meshes_left=1, meshes_total=12))
    read = files.read(request_id)
    assert read is not None
    assert (read.best_seconds, read.meshes_left) == (2.0, 1)


def test_requests_do_not_see_each_other(tmp_path: Path) -> None:
    files = ProgressFiles(folder=tmp_path)
    files.writer(uuid4())(SEARCHING)
    assert files.read(uuid4()) is None


def test_progress_that_is_over_is_forgotten(tmp_path: Path) -> None:
    files, request_id = ProgressFiles(folder=tmp_path), uuid4()
    files.writer(request_id)(SEARCHING)
    files.forget(request_id)
    files.forget(request_id)
    assert list(tmp_path.iterdir()) == []
