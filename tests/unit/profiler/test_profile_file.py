import json
from dataclasses import replace
from pathlib import Path

import pytest

from planner.profile import Profile
from planner.workload.operators import Collective, Phase
from profiler.journal import open_journal
from profiler.outcomes import Overlapped
from profiler.processes import Failure
from profiler.profile_file import Header, ProfileFile, best_measured
from profiler.shapes import CollectiveShape, KernelShape, OverlapShape, TransferShape
from profiler.timing import Timing

PRODUCT = KernelShape(
    operator="matrix_product", dtype="fp32", phase=Phase.WEIGHT_GRADIENT, shape={"m": 2, "n": 3, "k": 4}
)
ADD = KernelShape(operator="add", dtype="fp32", phase=Phase.FORWARD, shape={"elems": 2})
THREE, ONE = Timing.of([[1.0, 2.0, 3.0]]), Timing.of([[0.5]])
ALL_REDUCE = CollectiveShape(operation=Collective.ALL_REDUCE, world_size=2, payload_bytes=1024)
LINKS = {"dtype": "fp32", "algorithm": "gloo", "intra_link": "loopback", "inter_link": "network"}


def file_at(path: Path) -> ProfileFile:
    header = Header(
        name="chip/measured",
        device="chip",
        software={"torch": "2"},
        facts={"cores": 2},
        run="today",
        processes_per_node=2,
        links=LINKS,
    )
    journal = open_journal(path.with_suffix(".journal"), run="today", identity={"torch": "2"})
    return ProfileFile(path=path, header=header, journal=journal)


def test_every_state_of_the_file_is_a_profile(tmp_path: Path) -> None:
    profile = file_at(tmp_path / "profile.json")
    states = []

    def keep_state() -> None:
        states.append(json.loads(profile.path.read_text()))

    profile.write()
    keep_state()
    profile.add(PRODUCT, THREE)
    profile.write()
    keep_state()
    profile.add(ALL_REDUCE, ONE)
    profile.write()
    keep_state()
    profile.add(ADD, Failure(reason="out_of_memory", detail="too large"))
    profile.write()
    keep_state()
    profile.end()
    keep_state()

    assert [Profile.from_document(state).num_rows for state in states] == [0, 1, 2, 2, 2]
    assert [state["facts"]["complete"] for state in states] == [False, False, False, False, True]
    assert {path.name for path in tmp_path.iterdir()} == {"profile.json", "profile.journal"}


def test_rows_say_what_was_measured_how_long_it_took_and_where_from(tmp_path: Path) -> None:
    profile = file_at(tmp_path / "profile.json")
    profile.add(PRODUCT, THREE)
    profile.add(ALL_REDUCE, ONE)
    document = profile.document(complete=False)

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
            "inter_link": None,
            "seconds": 0.5,
            "spread_seconds": None,
            "source": "meshplan profiler",
            "source_ref": "today",
        }
    ]


def test_skipped_shapes_stand_among_the_facts(tmp_path: Path) -> None:
    profile = file_at(tmp_path / "profile.json")
    profile.add(ALL_REDUCE, Failure(reason="time_limit", detail="the time was up"))

    assert profile.document(complete=False)["facts"]["skipped"] == [
        {
            "operation": "all_reduce",
            "world_size": 2,
            "payload_bytes": 1024,
            "reason": "time_limit",
            "detail": "the time was up",
        }
    ]


def test_ranks_of_several_nodes_have_a_network_between_them(tmp_path: Path) -> None:
    profile = file_at(tmp_path / "profile.json")
    wide = replace(ALL_REDUCE, world_size=4)
    profile.add(wide, ONE)
    profile.add(replace(wide, world_size=2, ranks_per_node=1), ONE)

    rows = profile.document(complete=False)["collectives"]

    assert [(row["ranks_per_node"], row["inter_link"]) for row in rows] == [(2, "network"), (1, "network")]


def test_groups_at_once_and_overlaps_stand_among_the_facts(tmp_path: Path) -> None:
    profile = file_at(tmp_path / "profile.json")
    profile.add(replace(ALL_REDUCE, groups=4), ONE)
    overlapped = Overlapped(
        kernels=2, collective_alone=ONE, kernels_alone=ONE, collective_together=THREE, kernels_together=ONE
    )
    profile.add(OverlapShape(collective=ALL_REDUCE, kernel=PRODUCT), overlapped)
    document = profile.document(complete=False)

    assert document["collectives"] == []
    assert [(row["groups"], row["seconds"]) for row in document["facts"]["groups_at_once"]] == [(4, 0.5)]
    (overlap,) = document["facts"]["overlaps"]
    assert overlap["collective_seconds_alone"] == 0.5
    assert overlap["collective_seconds_together"] == 2.0
    assert overlap["collective"]["operation"] == "all_reduce"


def test_transfers_are_rates(tmp_path: Path) -> None:
    profile = file_at(tmp_path / "profile.json")
    profile.add(TransferShape(operation="h2d", payload_bytes=100), ONE)

    (row,) = profile.document(complete=False)["transfers"]
    assert row == {
        "operation": "h2d",
        "payload_bytes": 100,
        "bytes_per_second": 200.0,
        "source": "meshplan profiler",
        "source_ref": "today",
    }


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
