from typing import Any

from api.pages.progress import waiting_page
from tests.unit.api.pages.documents import unfinished

NBSP = "\N{NO-BREAK SPACE}"


def _running(**progress: object) -> dict[str, Any]:
    known = {"best_seconds": 1.1, "lower_bound_seconds": 1.0, "meshes_left": 30, "meshes_total": 120}
    return unfinished() | {"progress": known | progress, "problem": None}


def test_a_search_shows_bound_best_and_meshes_left() -> None:
    page = waiting_page(_running())
    assert page.is_open
    assert page.progress is not None
    assert (page.progress.best, page.progress.lower_bound, page.progress.gap) == (
        f"1.100{NBSP}s",
        f"1.000{NBSP}s",
        f"+10.0{NBSP}%",
    )
    assert (page.progress.meshes, page.progress.meshes_done) == ("30 of 120 left", 90)


def test_a_search_without_a_plan_yet_says_so() -> None:
    progress = waiting_page(_running(best_seconds=None)).progress
    assert progress is not None
    assert (progress.best, progress.gap) == ("none yet", "")


def test_a_request_that_waits_has_no_progress() -> None:
    page = waiting_page(unfinished("queued"))
    assert page.is_open
    assert page.progress is None


def test_a_request_that_failed_says_why_and_is_not_waited_for() -> None:
    page = waiting_page(unfinished("failed") | {"problem": {"detail": "the worker died"}})
    assert not page.is_open
    assert page.problem == "the worker died"
    assert page.title == "llama-3-70b on 64 × h100-sxm"
