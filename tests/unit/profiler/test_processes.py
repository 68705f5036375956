import pytest

from profiler.processes import Alone, Failure, Place, join, part, place_from_torchrun


def test_process_started_by_hand_has_no_place_yet() -> None:
    assert place_from_torchrun({"PATH": "/bin"}) is None
    assert place_from_torchrun({"RANK": "0"}) is None


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        (
            {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"},
            Place(rank=9, world_size=16, local_rank=1, processes_per_node=8),
        ),
        ({"RANK": "1", "WORLD_SIZE": "2"}, Place(rank=1, world_size=2, local_rank=1, processes_per_node=2)),
    ],
)
def test_torchrun_gives_a_place(environment: dict[str, str], place: Place) -> None:
    assert place_from_torchrun({**environment, "MASTER_ADDR": "localhost"}) == place


def test_single_process_meets_nobody() -> None:
    groups = join(Place(), meeting="", library="gloo", sizes={2, 4})

    assert groups == {1: Alone()}
    assert groups[1].exchange("mine") == ["mine"]
    groups[1].tell(Failure(reason="failed", detail="heard by nobody"))
    part()
