"""What a layout of a model that is trained in part costs."""

from dataclasses import replace

import pytest

from planner.cost.layout_costs import LayoutCosts
from planner.cost.model import CostModel
from planner.expansion import expand_short_plan
from planner.job import BaseFormat, Job, Loss, Precision, Trainable, TrainableKind
from planner.optimizers import OPTIMIZERS
from planner.profile import builtin_profile
from planner.strategy import ShortPlan
from planner.workload.trainable import trained_workload
from tests.unit.planner.settings import setting

LORA = Trainable(kind=TrainableKind.LORA, rank=16)
QLORA = replace(LORA, base_format=BaseFormat.NF4)


def costs(
    plan: ShortPlan, *, model: str = "llama-3-8b", framework: str = "megatron-core", **changes: object
) -> LayoutCosts:
    given = setting(model=model, framework=framework, sequence_length=1024)
    job: Job = replace(given.job, **changes)  # type: ignore[arg-type]  # fields of a job
    trained = replace(given, workload=trained_workload(given.workload, job), job=job)
    model_of = CostModel(
        setting=trained,
        group=trained.cluster.node_groups[0],
        profiles=[builtin_profile("h100-sxm/published")],
        memory_fraction=0.94,
    )
    return model_of.costs(expand_short_plan(plan, trained).layout)


def test_replicas_average_the_gradients_of_adapters_alone() -> None:
    whole, adapted = (costs(ShortPlan(zero_stage=0), trainable=what) for what in (Trainable(), LORA))
    assert adapted.layers[0].reduce.seconds < 0.1 * whole.layers[0].reduce.seconds
    assert adapted.first.reduce.seconds == adapted.last.reduce.seconds == 0


def test_frozen_weights_are_gathered_where_they_are_sharded_and_quantized_ones_at_rest() -> None:
    plan = ShortPlan(zero_stage=3)
    whole, adapted, quantized = (
        costs(plan, framework="pytorch", trainable=what) for what in (Trainable(), LORA, QLORA)
    )
    held = [part.layers[0].gathered_bytes for part in (whole, adapted, quantized)]
    assert held[0] < held[1] < 1.02 * held[0]
    assert held[2] < 0.3 * held[1]
    assert quantized.buffer_bytes <= adapted.buffer_bytes < whole.buffer_bytes


def test_the_first_and_the_last_stage_add_up_a_tied_weight_only_where_it_is_trained() -> None:
    plan = ShortPlan(pipeline_parallel=2)
    whole, adapted = (costs(plan, model="gpt-2-1.5b", trainable=what) for what in (Trainable(), LORA))
    assert whole.tied.seconds > 0 == adapted.tied.seconds
    # Both hold a second copy on the last stage, two bytes for each of its parameters.
    assert adapted.last.states.parameters >= 2 * 50257 * 1600
    assert adapted.last.states.gradients == adapted.last.states.optimizer == 0


def test_a_frozen_reference_doubles_the_parameters_and_nothing_else_of_the_states() -> None:
    plain, pairs = (costs(ShortPlan(zero_stage=0), loss=loss) for loss in (Loss.CAUSAL_LM, Loss.DPO))
    first, second = plain.layers[0].states, pairs.layers[0].states
    assert second.parameters == 2 * first.parameters
    assert (second.gradients, second.optimizer) == (first.gradients, first.optimizer)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP8])
def test_muon_multiplies_in_sixteen_bits_whatever_the_layers_do(precision: Precision) -> None:
    plan = ShortPlan(zero_stage=0)
    muon, lion = (
        costs(plan, precision=precision, optimizer=OPTIMIZERS[name]).layers[0].optimizer.seconds
        for name in ("muon", "lion")
    )
    sixteen_bits = costs(plan, optimizer=OPTIMIZERS["muon"]).layers[0].optimizer.seconds
    assert muon == pytest.approx(sixteen_bits)
    assert muon > 5 * lion


def test_formats_of_states_that_a_job_chooses_are_what_it_holds() -> None:
    plan = ShortPlan(zero_stage=0)
    usual, narrow = (
        costs(plan, gradient_dtype=chosen, optimizer_state_dtype=chosen).layers[0].states
        for chosen in (None, Precision.BF16)
    )
    assert narrow.gradients == usual.gradients / 2
    assert narrow.optimizer == usual.optimizer * (4 + 2 * 2) / (4 + 2 * 4)
