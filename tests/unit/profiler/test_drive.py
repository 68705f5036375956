from pathlib import Path

import pytest

from profiler import drive
from profiler.drive import BLOCK_BYTES, DriveRefused, direct_file
from profiler.operands import InvalidShape, Unsupported


@pytest.fixture
def nearly_full_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few blocks be written to a drive on which less than the usual reserve is free."""
    monkeypatch.setattr(drive, "KEPT_FREE_FRACTION", 0)
    monkeypatch.setattr(drive, "KEPT_FREE_BYTES", 0)


@pytest.mark.usefixtures("nearly_full_is_enough")
def test_file_is_written_and_read_and_then_gone(tmp_path: Path) -> None:
    path = tmp_path / "probe"
    try:
        with direct_file(path, num_bytes=2 * BLOCK_BYTES) as file:
            file.read()
            size = path.stat().st_size
    except Unsupported:
        pytest.skip("the temporary folder has no direct input and output")

    assert size == 2 * BLOCK_BYTES
    assert not path.exists()


@pytest.mark.usefixtures("nearly_full_is_enough")
def test_what_is_there_already_stays(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("mine")

    with pytest.raises(DriveRefused, match="is there already"), direct_file(path, num_bytes=BLOCK_BYTES):
        pass
    assert path.read_text() == "mine"


@pytest.mark.usefixtures("nearly_full_is_enough")
def test_devices_are_never_opened() -> None:
    with pytest.raises(DriveRefused, match="is there already"):
        direct_file(Path("/dev/null"), num_bytes=BLOCK_BYTES).__enter__()


def test_last_of_the_space_is_never_taken(tmp_path: Path) -> None:
    with pytest.raises(DriveRefused, match="would leave less than"):
        direct_file(tmp_path / "probe", num_bytes=2**60).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(DriveRefused, match="no folder"):
        direct_file(tmp_path / "absent" / "probe", num_bytes=BLOCK_BYTES).__enter__()


def test_size_is_a_whole_number_of_blocks(tmp_path: Path) -> None:
    with pytest.raises(InvalidShape, match="must be a multiple of"):
        direct_file(tmp_path / "probe", num_bytes=BLOCK_BYTES + 1).__enter__()
