"""Which sets of modules are worth trying, and that none that is left out is worth more."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.search import Case
from planner.cost.pipeline import LayerClass, LayerOption, PipelineProblem, chunk_costs, stage_peak_bytes
from planner.job import AttentionKind
from planner.legality import missing_modules
from planner.search.module_sets import module_sets, quickest, undominated
from planner.setting import Setting
from planner.strategy import Recompute, RecomputeMode
from planner.workload.layers import Cut
from planner.workload.operators import Module
from planner.workload.recomputation import recomputed_operators, saved_bytes
from tests.unit.planner.cost.problems import ALTERNATING, problems
from tests.unit.planner.settings import setting


def judged(
    model: str, *, attention: AttentionKind = AttentionKind.FLASH, version: str | None = None
) -> Setting:
    return setting(model=model, attention=attention, version=version)


def named(found: tuple[Recompute, ...]) -> set[tuple[str, ...]]:
    return {option.modules for option in found}


def test_of_dense_layers_the_mlp_alone_can_run_again() -> None:
    # Transformer Engine joins their norms to the products after them.
    assert named(module_sets(judged("llama-3-8b"))) == {("mlp",)}


def test_a_core_that_is_not_fused_may_run_again() -> None:
    found = named(module_sets(judged("gpt-3-175b", attention=AttentionKind.UNFUSED)))
    assert found == {("core_attention",), ("mlp",), ("core_attention", "mlp")}


def test_modules_within_another_make_no_further_sets() -> None:
    assert named(module_sets(judged("mixtral-8x7b"))) == {
        ("moe",),
        ("moe_activation",),
        ("norm",),
        ("norm", "moe"),
        ("norm", "moe_activation"),
    }


def test_a_release_without_other_modules_has_none_beside_the_core() -> None:
    assert module_sets(judged("mixtral-8x7b", version="0.11")) == ()
    asked = module_sets(judged("mixtral-8x7b", version="0.11"), is_fixed=True)
    assert named(asked) == {("core_attention",)}


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite"])
@pytest.mark.parametrize("tensor_parallel", [1, 2])
def test_every_set_left_out_is_no_quicker_and_no_smaller_than_one_left(
    model: str, tensor_parallel: int
) -> None:
    own = judged(model)
    left = [frozenset(Module(name) for name in option.modules) for option in module_sets(own)]
    names = [
        Module(name)
        for name in own.framework.limits.recompute_modules.values()
        if name != Module.CORE_ATTENTION
        and not missing_modules(own, Recompute(mode=RecomputeMode.SELECTIVE, modules=(name,)))
    ]
    cut = Cut(
        micro_batch_size=2,
        sequence_length=own.job.sequence_length or 1,
        tensor_parallel=tensor_parallel,
        sequence_parallel=tensor_parallel > 1,
        keeping=own.framework.keeping(own.job.precision),
    )
    layers = [[op for layer in unit for op in layer.operators(cut)] for unit in own.body.classes]

    def effect(modules: frozenset[Module]) -> tuple[list[float], list[Counter[str]]]:
        saved = [saved_bytes(ops, recompute=modules) for ops in layers]
        again = [Counter(op.name for op in recomputed_operators(ops, recompute=modules)) for ops in layers]
        return saved, again

    rivals = [effect(modules) for modules in (frozenset[Module](), *left)]
    for size in range(1, len(names) + 1):
        for chosen in combinations(names, size):
            saved, again = effect(frozenset(chosen))
            assert any(
                all(mine <= theirs for mine, theirs in zip(known, saved, strict=True))
                and all(mine <= theirs for mine, theirs in zip(runs, again, strict=True))
                for known, runs in rivals
            ), chosen


def test_the_quickest_of_some_sets_is_one_without_a_smaller_one_within() -> None:
    found = quickest(module_sets(judged("mixtral-8x7b")))
    assert named(found) == {("moe_activation",), ("norm",)}


@st.composite
def layers(draw: st.DrawFn) -> LayerClass:
    """Draw layers with several options, of which more bytes are needed at once where fewer are kept."""
    saved = draw(st.lists(st.integers(0, 5).map(lambda tens: 10 * tens), min_size=5, max_size=5))
    options = (
        LayerOption(
            recompute=Recompute(),
            forward_ns=10,
            backward_ns=draw(st.integers(20, 30)),
            saved_bytes=kept,
            working_bytes=100 - kept + draw(st.sampled_from([0, 0, 5])),
        )
        for kept in saved
    )
    return LayerClass(options=tuple(options), static_bytes=7, optimizer_ns=0, gather_ns=0, reduce_ns=0)


def used_by_all(problem: PipelineProblem, number: int) -> PipelineProblem:
    classes = (replace(own, options=(own.options[number],)) for own in problem.classes)
    return replace(problem, classes=tuple(classes))


@given(data=st.data(), like=problems(schedules=ALTERNATING), classes=st.tuples(layers(), layers()))
def test_a_set_that_is_dropped_is_nowhere_quicker_and_nowhere_smaller_than_one_left(
    data: st.DataObject, like: PipelineProblem, classes: tuple[LayerClass, ...]
) -> None:
    problem = replace(like, classes=classes, sequence=(0, 1))
    counts = st.tuples(st.integers(0, 3), st.integers(0, 3))
    assignment = tuple(data.draw(counts) for _ in range(problem.shape.num_chunks))

    def figures(number: int) -> list[int]:
        one = used_by_all(problem, number)
        costs = chunk_costs(one, assignment)
        peaks = [stage_peak_bytes(one, costs, stage) for stage in range(one.shape.num_stages)]
        return [*(cost.forward_ns for cost in costs), *(cost.backward_ns for cost in costs), *peaks]

    left = [figures(number) for number in undominated(problem)]
    for number in range(5):
        own = figures(number)
        assert any(all(mine <= theirs for mine, theirs in zip(one, own, strict=True)) for one in left)


def test_sets_that_are_quicker_in_different_layers_are_both_left() -> None:
    def layer(*backward_ns: int) -> LayerClass:
        options = (
            LayerOption(recompute=Recompute(), forward_ns=1, backward_ns=ns, saved_bytes=1, working_bytes=1)
            for ns in backward_ns
        )
        return LayerClass(options=tuple(options), static_bytes=0, optimizer_ns=0, gather_ns=0, reduce_ns=0)

    like = Case(stages=2, virtual_stages=1, micro_batches=2, layers=2).problem()
    both = replace(like, classes=(layer(1, 2, 2), layer(5, 3, 5)), sequence=(0, 1))
    assert undominated(both) == (1, 0)
