import pytest

from profiler.processes import Alone, Failure, GroupShape, Place, join, part, place_from_torchrun


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
    groups = join(Place(), meeting="", library="gloo", shapes={GroupShape(size=2), GroupShape(size=4)})

    assert groups == {GroupShape(size=1): Alone()}
    (alone,) = groups.values()
    assert alone.exchange("mine") == ["mine"]
    alone.tell(Failure(reason="failed", detail="heard by nobody"))
    part()


@pytest.mark.parametrize(
    ("shape", "world_size", "available"),
    [
        (GroupShape(size=2), 8, 4),
        (GroupShape(size=3), 8, 2),
        (GroupShape(size=2, stride=4), 8, 4),
        (GroupShape(size=4, stride=2), 8, 2),
        (GroupShape(size=4, stride=4), 8, 0),
    ],
)
def test_groups_share_no_rank(shape: GroupShape, world_size: int, available: int) -> None:
    assert shape.num_available(world_size) == available
    ranks = [rank for number in range(available) for rank in shape.members(number)]
    assert len(set(ranks)) == len(ranks)
    assert set(ranks) <= set(range(world_size))
