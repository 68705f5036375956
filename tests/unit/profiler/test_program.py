from collections.abc import Iterator
from typing import Any

import pytest
import torch

from planner.cluster import Device
from planner.cost.host_times import ProgramRun
from planner.profile import Profile
from profiler.backend import CpuBackend
from profiler.processes import Alone
from profiler.program import program_facts


@pytest.fixture(scope="module")
def facts() -> Iterator[dict[str, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield program_facts(CpuBackend(processes_per_node=1), Alone(), seconds_limit=0.0)
    torch.set_num_threads(threads)


def test_every_way_to_run_a_layer_is_timed(facts: dict[str, Any]) -> None:
    seconds = {(row["program"], row["phase"]): row["seconds"] for row in facts["rows"]}
    ways = (
        "plain",
        "larger",
        "checkpoint",
        "checkpoint_core",
        "tensor_parallel",
        "sequence_parallel",
        "sharded",
    )
    expected = {(way, phase) for way in ways for phase in ("forward", "backward")}
    assert seconds.keys() == expected | {
        ("pipeline", "micro_batch"),
        ("stages", "micro_batch"),
        ("split_stages", "micro_batch"),
        ("update", "layer"),
        ("update", "step"),
        ("product", "forward"),
        ("product", "input_gradient"),
        ("product", "weight_gradient"),
    }
    assert all(seconds[way, "forward"] > 0 for way in ways)
    # What DTensor does for each operator takes many times what the operator does.
    assert seconds["tensor_parallel", "forward"] > 1.5 * seconds["plain", "forward"]


def test_planner_reads_what_the_profiler_writes(facts: dict[str, Any]) -> None:
    device = Device(
        name="here",
        memory_bytes=1e9,
        peak_flops_per_second={"fp32": 1e11},
        memory_bandwidth_bytes_per_second=1e10,
    )
    run = ProgramRun.of(device, [Profile(name="here/measured", device="here", facts={"program": facts})])
    assert run is not None
    assert run.block.hidden == facts["block"]["hidden"]
    assert run.layers == facts["layers"]
    assert run.product is not None
    assert run.product.rows == facts["product"]["rows"]
    # Alone there is nobody to wait for.
    assert run.waiting_fraction == 0.0


def test_no_group_is_left_behind(facts: dict[str, Any]) -> None:
    del facts
    assert not torch.distributed.is_initialized()
