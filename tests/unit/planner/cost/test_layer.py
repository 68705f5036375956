from dataclasses import replace

import pytest

from planner.cost.layer import LayerClock
from planner.cost.ledger import TALLIES
from planner.frameworks import framework_by_name
from planner.pace import ProgramPace
from planner.profile import Estimate, Provenance
from planner.strategy import Recompute, RecomputeMode
from planner.workload.layers import Cut
from planner.workload.lstm import LstmLayer
from planner.workload.operators import AttentionCore, CollectivePass, MatrixProduct, MemoryPass, Phase
from planner.workload.traced import TracedLayer, TracedPass, TracedProduct, Volume

LAUNCH_SECONDS = 1e-5
STEPS = 64


INSTANT = Estimate(seconds=1e-12, provenance=Provenance.MEASURED, relative_error=0.0)


class InstantKernels:
    """Kernels of which only the launch takes time."""

    def matrix_product(self, op: MatrixProduct, *, phase: Phase) -> Estimate:  # noqa: ARG002 - a KernelClock
        return INSTANT

    def attention(self, op: AttentionCore, *, phase: Phase) -> Estimate:  # noqa: ARG002 - a KernelClock
        return INSTANT

    def memory_pass(self, op: MemoryPass, *, phase: Phase) -> Estimate:  # noqa: ARG002 - a KernelClock
        return INSTANT


def no_collectives(op: CollectivePass) -> Estimate:
    raise AssertionError(op)


CLOCK = LayerClock(
    kernels=InstantKernels(),
    collectives=no_collectives,
    ledger=TALLIES,
    framework=replace(framework_by_name("pytorch"), pace=ProgramPace(launch_seconds=LAUNCH_SECONDS)),
)
PASSES = CLOCK.passes(
    LstmLayer(inputs=32, hidden=32), Cut(micro_batch_size=2, sequence_length=STEPS, element_bytes=2)
)


def test_every_step_of_a_recurrence_is_launched() -> None:
    # Forward: one product of all inputs, and a product and a pass for every step.
    assert PASSES.forward.seconds == pytest.approx((1 + 2 * STEPS) * LAUNCH_SECONDS)
    # Backward: two gradients of the inputs' product, one of all steps' weights, and two for every step.
    assert PASSES.backward.seconds == pytest.approx((2 + 1 + 2 * STEPS) * LAUNCH_SECONDS)


def test_steps_that_run_again_are_launched_again() -> None:
    cost = CLOCK.cost(PASSES, Recompute(mode=RecomputeMode.FULL))
    assert cost.backward.seconds == pytest.approx(PASSES.forward.seconds + PASSES.backward.seconds)


def test_a_product_of_what_nothing_trains_has_one_gradient_and_a_pass_runs_where_it_moves_something() -> None:
    layer = TracedLayer(
        operators_of_sample=(
            TracedProduct(name="product", rows=8, columns=8, inner=8, steps=4, has_input_gradient=False),
            TracedPass(name="mask", resembles="add", forward=Volume(bytes=8), repeat=3),
            TracedPass(name="slice", resembles="copy", backward=Volume(bytes=8), repeat=2),
        )
    )
    passes = CLOCK.passes(layer, Cut(micro_batch_size=2, sequence_length=1))
    assert passes.forward.seconds == pytest.approx((4 + 3) * LAUNCH_SECONDS)
    assert passes.backward.seconds == pytest.approx((1 + 2) * LAUNCH_SECONDS)
