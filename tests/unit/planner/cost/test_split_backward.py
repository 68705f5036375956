"""A split backward pass: what its second part takes, and what stays until then."""

from typing import Any

import pytest

from planner.cost.model import CostModel
from planner.cost.split_backward import graph_bytes, held_bytes
from planner.expansion import expand_short_plan
from planner.profile import builtin_profile
from planner.strategy import Layout, Schedule, ScheduleName, ShortPlan
from planner.workload.layers import Cut
from planner.workload.operators import MatrixProduct
from planner.workload.presets import preset_workload
from planner.workload.recomputation import saved_bytes
from tests.unit.planner.settings import setting


def model_of(framework: str, **given: Any) -> CostModel:  # noqa: ANN401 - words of a setting
    judged = setting(model="gpt-3-175b", cluster="a100-sxm-80gb", framework=framework, **given)
    return CostModel(
        setting=judged,
        group=judged.cluster.node_groups[0],
        profiles=(builtin_profile("a100-sxm-80gb/published"),),
        memory_fraction=0.94,
    )


def layout_of(model: CostModel, schedule: ScheduleName, *, tensor_parallel: int = 1) -> Layout:
    short = ShortPlan(
        tensor_parallel=tensor_parallel,
        pipeline_parallel=4,
        sequence_parallel=tensor_parallel > 1,
        schedule=Schedule(name=schedule, virtual_stages=schedule.fewest_chunks),
    )
    return expand_short_plan(short, model.setting).layout


def test_a_gpt_layer_holds_32_bytes_per_element_until_its_weights_have_gradients() -> None:
    """Qi et al. (arXiv 2401.10241), table 2: 32 s b h; of those 14 are inputs, which were saved anyway."""
    sequence, micro_batch, hidden = 2048, 2, 12288
    cut = Cut(micro_batch_size=micro_batch, sequence_length=sequence)
    (decoder,) = [run.layer for run in preset_workload("gpt-3-175b").runs if run.layer.kind == "decoder"]
    operators = decoder.operators(cut)
    unit = sequence * micro_batch * hidden
    assert held_bytes(operators, cut) / unit == pytest.approx(32)
    weights = [op for op in operators if isinstance(op, MatrixProduct) and op.has_weights]
    assert sum(op.saved_bytes for op in weights) / unit == pytest.approx(14)


def test_a_graph_that_stays_holds_all_that_was_saved_and_the_gradients_of_outputs() -> None:
    cut = Cut(micro_batch_size=1, sequence_length=2048)
    (decoder,) = [run.layer for run in preset_workload("gpt-3-175b").runs if run.layer.kind == "decoder"]
    operators, unit = decoder.operators(cut), 2048 * 12288
    kept = saved_bytes(operators)
    # 18 of products and 4 of two norms.
    assert (graph_bytes(operators, cut, saved_bytes=kept) - kept) / unit == pytest.approx(22)


def test_the_second_pass_takes_the_time_of_the_products_of_weights() -> None:
    """Forward 24 h + 4 s, inputs 24 h + 8 s, weights 24 h FLOP per element: weights just below half."""
    model = model_of("pytorch", num_devices=8, global_batch_size=8, sequence_length=2048)
    problem = model.problem(layout_of(model, ScheduleName.ZB_H1))
    option = problem.options[0]
    assert 0.4 < option.weight_ns / option.backward_ns < 0.5
    whole = model.problem(layout_of(model, ScheduleName.ONE_FORWARD_ONE_BACKWARD)).options[0]
    assert whole.backward_ns == option.backward_ns
    assert whole.weight_ns == whole.held_bytes == 0


def test_communication_that_hid_behind_gradients_of_weights_shows_when_those_run_later() -> None:
    model = model_of("any", num_devices=32, global_batch_size=8, sequence_length=2048)
    split, whole = (
        model.problem(layout_of(model, name, tensor_parallel=8)).options[0]
        for name in (ScheduleName.ZB_H1, ScheduleName.ONE_FORWARD_ONE_BACKWARD)
    )
    assert split.backward_ns > whole.backward_ns
