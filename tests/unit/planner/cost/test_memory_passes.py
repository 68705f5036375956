from typing import Any

import pytest

from planner.cost.compute import KernelCosts
from planner.cost.memory_passes import MOVED, MemoryTimes
from planner.job import Precision
from planner.profile import Profile, Provenance
from planner.workload.operators import Phase
from tests.unit.planner.cost.machines import bench_device, bench_profile
from tests.unit.planner.profile_documents import pass_row, profile_document

SIZES = (2**12, 2**16, 2**20)


def plane(elements: int, **more: int) -> dict[str, int]:
    return {"rows": elements // 64, "cols": 64, **more}


def rows_of(operator: str, phase: str, rate: float) -> list[dict[str, Any]]:
    """Rows of a pass that moves so many bytes per second, as the profiler writes their shapes."""
    found = []
    for elements in SIZES:
        moved = MOVED[operator, phase].bytes_per_element(4) * elements
        shape = {"params": elements} if phase == "optimizer" else plane(elements)
        if operator == "embedding":
            shape = plane(elements, vocabulary=1000)
            moved += 1000 * 64 * 4 * (phase == "backward")
        found.append(pass_row(operator, 0, moved / rate, phase=phase, shape=shape))
    return found


def times(*rows: dict[str, Any]) -> MemoryTimes:
    return MemoryTimes.of(bench_device(), [Profile.from_document(profile_document(kernels=rows))])


@pytest.mark.parametrize("operator", ["rotary", "cross_entropy", "embedding", "dropout", "permute"])
@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.BACKWARD])
def test_passes_that_were_measured_take_what_they_took(operator: str, phase: Phase) -> None:
    unmeasured = times().estimate(operator, 2**20, phase=phase)
    known = "forward" if operator == "permute" else phase.value
    slow, quick = (
        times(*rows_of(operator, known, rate)).estimate(operator, 2**20, phase=phase) for rate in (1e8, 1e12)
    )
    assert slow.seconds == pytest.approx(2**20 / 1e8, rel=0.05)
    assert quick.seconds < unmeasured.seconds < slow.seconds
    assert unmeasured.provenance is Provenance.DATASHEET
    assert slow.provenance is Provenance.INTERPOLATED


@pytest.mark.parametrize("operator", ["rotary", "cross_entropy", "embedding", "dropout", "permute"])
def test_a_larger_pass_never_takes_less(operator: str) -> None:
    known = times(*rows_of(operator, "forward", 1e9))
    found = [known.estimate(operator, 2.0**power, phase=Phase.FORWARD).seconds for power in range(1, 34)]
    assert found == sorted(found)


def test_a_look_up_without_its_table_says_nothing() -> None:
    bare = [pass_row("embedding", 0, 1.0, phase="backward", shape=plane(size)) for size in SIZES]
    assert not times(*bare).curves


def test_sgd_runs_as_measured_and_as_adam_where_it_was_not() -> None:
    adam, sgd = (rows_of(kind, "optimizer", rate) for kind, rate in (("adam", 1e9), ("sgd", 2e9)))

    def seconds(*kernels: dict[str, Any], kind: str) -> float:
        document = profile_document(kernels=[*bench_profile().to_document()["kernels"], *kernels])
        costs = KernelCosts(bench_device(), [Profile.from_document(document)], Precision.FP32)
        return costs.optimizer_step(1e6, 20.0, kind=kind).seconds

    assert seconds(*adam, *sgd, kind="sgd") == pytest.approx(2e7 / 2e9)
    assert seconds(*adam, kind="sgd") == seconds(*adam, *sgd, kind="lion") == pytest.approx(2e7 / 1e9)
    assert seconds(*adam, kind="sgd") == seconds(*adam, kind="adam")
