"""Rules of frameworks: each is told in words, and none is broken by what a search considers."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from planner.errors import IllegalChoice
from planner.framework import Grain
from planner.framework_rules import LAYOUT_PARTS, RULES, layer_violations, rule_table, rules_of
from planner.frameworks import FRAMEWORKS, framework_by_name
from planner.job import Constraints
from planner.legality import layout_violations
from planner.limits import LayerSplit
from planner.rules.layers import usual_split
from planner.search.meshes import by_mesh, meshes, scheduled, schedules, space_size, variants
from planner.search.refusal import why_nothing_is_legal
from planner.search.space import STEPS, search_space
from planner.setting import Setting
from planner.strategy import Layout, Recompute, RecomputeMode
from tests.unit.planner.settings import setting

RELEASES = [
    (name, version) for name, framework in FRAMEWORKS.items() for version in (*framework.versions, None)
]

WITHOUT_HOST = Constraints(forbid=("offload",))


def layouts(judged: Setting) -> Iterator[Layout]:
    """Yield every layout that a search considers, those that keep nothing on the host."""
    space = search_space(judged, WITHOUT_HOST)
    for mesh, batch in meshes(space):
        for schedule in schedules(space, mesh, batch):
            for layout in variants(space, mesh, batch):
                found = scheduled(space, layout, schedule)
                if found is not None:
                    yield found


def small(model: str, framework: str, version: str | None) -> Setting:
    return setting(
        model=model,
        framework=framework,
        version=version,
        num_devices=8,
        num_layers=6,
        global_batch_size=24,
        sequence_length=2048,
    )


@pytest.mark.parametrize(("framework", "version"), RELEASES)
@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b"])
def test_nothing_that_a_search_considers_breaks_a_rule(
    model: str, framework: str, version: str | None
) -> None:
    judged = small(model, framework, version)
    if judged.has_experts and not judged.framework.limits.experts.exist:
        with pytest.raises(IllegalChoice) as refused:
            search_space(judged, Constraints())
        assert refused.value.pointer == "/job/framework"
        return
    seen = list(layouts(judged))
    assert {layout_violations(judged, layout) for layout in seen} == {()}
    for_the_job = judged.framework.recompute_grain is Grain.JOB
    # Where one mode holds for the job, several of a layout are as many layouts: sets of modules.
    modes = [len(layout.recompute) if for_the_job else 1 for layout in seen]
    assert space_size(by_mesh(search_space(judged, WITHOUT_HOST))).layouts == sum(modes)
    one_each = (
        replace(layout, recompute=(mode,))
        for layout, number in zip(seen, modes, strict=True)
        if number > 1
        for mode in layout.recompute[:: number - 1]
    )
    assert {layout_violations(judged, layout) for layout in one_each} <= {()}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_nothing_that_a_search_keeps_on_the_host_breaks_a_rule(framework: str) -> None:
    judged = small("llama-3-8b", framework, None)
    space = replace(search_space(judged, Constraints()), looks_at_hosts=True)
    for batched in list(by_mesh(space))[:6]:
        mesh, batch = batched.mesh, batched.batches[0]
        schedule = next(schedules(space, mesh, batch))
        offloading = [
            replace(choice.on(mesh, batch), schedule=schedule) for chain in batched.chains for choice in chain
        ]
        assert {layout_violations(judged, layout) for layout in offloading} == {()}


@pytest.mark.parametrize(("framework", "version"), RELEASES)
def test_a_framework_that_spreads_layers_itself_breaks_no_rule_of_its_own(
    framework: str, version: str | None
) -> None:
    judged = small("llama-3-8b", framework, version)
    if judged.framework.limits.layer_split is LayerSplit.ANY:
        assert "layers-per-chunk" not in {entry.name for entry in rule_table(judged.framework)}
        return
    for layout in layouts(judged):
        split = usual_split(judged, layout)
        assert sum(split) == judged.num_layers
        assert layer_violations(judged, layout, split) == ()


def test_a_rule_can_be_asked_as_soon_as_a_search_has_decided_what_it_reads() -> None:
    for rule in RULES:
        if rule.parts <= LAYOUT_PARTS:
            assert any(rule.parts <= step for step in STEPS), rule.name


def test_names_of_rules_are_unique() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))


def test_every_rule_binds_some_release() -> None:
    bound = {
        rule.name for name, version in RELEASES for rule in rules_of(framework_by_name(name, version=version))
    }
    assert bound == {rule.name for rule in RULES}


def test_the_table_tells_the_rules_that_bind() -> None:
    for framework in FRAMEWORKS.values():
        table = rule_table(framework)
        assert [entry.name for entry in table] == [rule.name for rule in rules_of(framework)]
        assert all(entry.words for entry in table)


def test_no_framework_at_all_has_few_rules() -> None:
    """What stays is what can be priced: schedules, recomputed modules, formats sent, hosts' optimizers."""
    names = {entry.name for entry in rule_table(FRAMEWORKS["any"])}
    sent = {"gathered-formats", "reduced-formats", "exchanged-reductions"}
    assert names == {"schedules", "interleaved-groups", "recompute-modules", "host-optimizer", *sent}


def test_a_search_may_be_held_to_modules_by_the_names_of_the_framework() -> None:
    fixed = Recompute(mode=RecomputeMode.SELECTIVE, modules=("layernorm", "moe_act"))
    judged = small("mixtral-8x7b", "megatron-core", None)
    space = search_space(judged, Constraints(fixed={"recompute": fixed}))
    mesh, batch = next(meshes(space))
    (layout, *_) = variants(space, mesh, batch)
    (option,) = layout.recompute
    assert option.modules == ("norm", "moe_activation")
    assert layout_violations(judged, layout) == ()


@pytest.mark.parametrize(
    ("module", "words"),
    [("moe_act", "has the module 'moe_activation'"), ("gdn_norm", "no module 'gdn_norm'")],
)
def test_a_search_held_to_a_module_that_is_not_there_is_told_so(module: str, words: str) -> None:
    fixed = Recompute(mode=RecomputeMode.SELECTIVE, modules=(module,))
    space = search_space(small("llama-3-8b", "megatron-core", None), Constraints(fixed={"recompute": fixed}))
    assert space_size(by_mesh(space)).layouts == 0
    refused = why_nothing_is_legal(space)
    assert refused.pointer == "/constraints/fixed/recompute"
    assert words in refused.message
