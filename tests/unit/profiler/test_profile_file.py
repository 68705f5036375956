import json
from pathlib import Path

import pytest

from planner.profile import Profile
from planner.workload.operators import Collective, Phase
from profiler.profile_file import Header, ProfileFile, best_measured
from profiler.shapes import CollectiveShape, KernelShape
from profiler.timing import Timing

PRODUCT = KernelShape(
    operator="matrix_product", dtype="fp32", phase=Phase.WEIGHT_GRADIENT, shape={"m": 2, "n": 3, "k": 4}
)
ALL_REDUCE = CollectiveShape(operation=Collective.ALL_REDUCE, world_size=2, payload_bytes=1024)
LINKS = {"dtype": "fp32", "algorithm": "gloo", "intra_link": "loopback", "inter_link": None}


def file_at(path: Path) -> ProfileFile:
    header = Header(
        name="chip/measured", device="chip", software={"torch": "2"}, facts={"cores": 2}, run="today"
    )
    return ProfileFile(path=path, header=header)


def test_every_state_of_the_file_is_a_profile(tmp_path: Path) -> None:
    profile = file_at(tmp_path / "profile.json")
    states = []

    def keep_state() -> None:
        states.append(json.loads(profile.path.read_text()))

    profile.write()
    keep_state()
    profile.add_kernel(PRODUCT, Timing(samples=(1.0, 2.0, 3.0)))
    keep_state()
    profile.add_collective(ALL_REDUCE, Timing(samples=(0.5,)), ranks_per_node=2, links=LINKS)
    keep_state()
    profile.add_skipped(PRODUCT, reason="out_of_memory", detail="too large")
    keep_state()
    profile.write(complete=True)
    keep_state()

    assert [Profile.from_document(state).num_rows for state in states] == [0, 1, 2, 2, 2]
    assert [state["facts"]["complete"] for state in states] == [False, False, False, False, True]
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]


def test_rows_say_what_was_measured_how_long_it_took_and_where_from(tmp_path: Path) -> None:
    profile = file_at(tmp_path / "profile.json")
    profile.add_kernel(PRODUCT, Timing(samples=(1.0, 2.0, 3.0)))
    profile.add_collective(ALL_REDUCE, Timing(samples=(0.5,)), ranks_per_node=2, links=LINKS)
    document = json.loads(profile.path.read_text())

    assert document["kernels"] == [
        {
            "operator": "matrix_product",
            "dtype": "fp32",
            "phase": "weight_gradient",
            "shape": {"m": 2, "n": 3, "k": 4},
            "seconds": 2.0,
            "spread_seconds": pytest.approx(1.4826),
            "source": "meshplan profiler",
            "source_ref": "today",
        }
    ]
    assert document["collectives"] == [
        {
            "operation": "all_reduce",
            "world_size": 2,
            "payload_bytes": 1024,
            "ranks_per_node": 2,
            **LINKS,
            "seconds": 0.5,
            "spread_seconds": None,
            "source": "meshplan profiler",
            "source_ref": "today",
        }
    ]


def test_skipped_shapes_stand_among_the_facts(tmp_path: Path) -> None:
    profile = file_at(tmp_path / "profile.json")
    profile.add_skipped(ALL_REDUCE, reason="time_limit", detail="the time was up")

    assert json.loads(profile.path.read_text())["facts"]["skipped"] == [
        {
            "operation": "all_reduce",
            "world_size": 2,
            "payload_bytes": 1024,
            "reason": "time_limit",
            "detail": "the time was up",
        }
    ]


def test_best_rates_are_those_of_products_and_adds() -> None:
    rows = [
        {"operator": "matrix_product", "dtype": "fp32", "shape": {"m": 10, "n": 10, "k": 10}, "seconds": 2.0},
        {"operator": "matrix_product", "dtype": "fp32", "shape": {"m": 10, "n": 10, "k": 10}, "seconds": 1.0},
        {"operator": "add", "dtype": "bf16", "shape": {"elems": 100}, "seconds": 1.0},
    ]

    assert best_measured(rows) == {
        "flops_per_second": {"fp32": 2000.0},
        "memory_bandwidth_bytes_per_second": 600.0,
    }
    assert best_measured([]) == {"flops_per_second": {}, "memory_bandwidth_bytes_per_second": None}
