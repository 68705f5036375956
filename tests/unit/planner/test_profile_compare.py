from typing import Any

import pytest

from planner.profile import Profile
from planner.profile_compare import LEAST_ROWS, compare_profiles
from tests.unit.planner.profile_documents import profile_document


def profile(*, factor: float, rows: int = LEAST_ROWS, first: int = 1) -> Profile:
    kernels = [
        {
            "operator": "add",
            "dtype": "fp32",
            "phase": "forward",
            "shape": {"elems": elems},
            "seconds": factor * elems,
        }
        for elems in range(first, first + rows)
    ]
    collectives: list[dict[str, Any]] = [
        {
            "operation": "broadcast",
            "world_size": 2,
            "ranks_per_node": 2,
            "payload_bytes": 8,
            "seconds": factor,
        }
    ]
    transfers = [{"operation": "h2d", "payload_bytes": 8, "bytes_per_second": 1 / factor}]
    return Profile.from_document(
        profile_document(kernels=kernels, collectives=collectives, transfers=transfers)
    )


def test_machine_that_is_slower_than_the_middle_one_is_named() -> None:
    machines = {"a": profile(factor=1.0), "b": profile(factor=1.02), "c": profile(factor=1.5)}
    adds = [one for one in compare_profiles(machines) if one.kind.startswith("add")]

    assert [one.name for one in adds if one.is_slow] == ["c"]
    assert [one.relative_time for one in adds] == pytest.approx([1 / 1.02, 1, 1.5 / 1.02])


def test_of_few_rows_none_is_named() -> None:
    machines = {"a": profile(factor=1.0), "b": profile(factor=2.0)}
    others = [one for one in compare_profiles(machines) if not one.kind.startswith("add")]

    assert {one.kind for one in others} == {"broadcast, 2 ranks", "h2d"}
    assert [one.relative_time for one in others] == [1.0, 2.0, 1.0, 2.0]
    assert not any(one.is_slow for one in others)


def test_only_what_all_have_is_compared() -> None:
    machines = {"a": profile(factor=1.0), "b": profile(factor=1.0, first=LEAST_ROWS)}

    (row, _) = [one for one in compare_profiles(machines) if one.kind.startswith("add")]
    assert row.rows == 1
