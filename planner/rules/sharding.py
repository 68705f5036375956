"""Which states a framework shards, over which groups, and beside which other axes."""

from collections.abc import Iterable, Iterator
from typing import Final

from planner.framework import Framework
from planner.limits import STATES
from planner.rules.rule import Part, Proposal, Rule
from planner.setting import nearest_values
from planner.strategy import Violation, ZeroStage


def numbers(stages: Iterable[ZeroStage]) -> str:
    """Return ZeRO stages as people list them."""
    return ", ".join(str(stage.value) for stage in stages)


def refused_stage(proposal: Proposal, legal: Iterable[ZeroStage], *, rule: str) -> Violation:
    """Return that a ZeRO stage is none of the legal ones."""
    stage = proposal.layout.sharding.zero_stage.value
    return Violation(
        pointer="/plan/zero_stage",
        rule=rule,
        nearest_legal=nearest_values(stage, [other.value for other in legal]),
    )


def _stages_words(framework: Framework) -> str | None:
    every = framework.zero_stages == tuple(ZeroStage)
    return None if every else f"zero_stage is one of {numbers(framework.zero_stages)}"


def _stages(proposal: Proposal) -> Iterator[Violation]:
    stage, legal = proposal.layout.sharding.zero_stage, proposal.framework.zero_stages
    if stage not in legal:
        yield refused_stage(proposal, legal, rule=f"{proposal.who} has no ZeRO stage {stage.value}")


def _beside(framework: Framework, stages: Iterable[ZeroStage]) -> tuple[ZeroStage, ...]:
    """Return those of a framework's ZeRO stages that are in ``stages`` too."""
    allowed = set(stages)
    return tuple(stage for stage in framework.zero_stages if stage in allowed)


def _pipeline_words(framework: Framework) -> str | None:
    legal = _beside(framework, framework.pipeline_zero_stages)
    if not framework.pipeline_parallel or legal == framework.zero_stages:
        return None
    return f"zero_stage beside a pipeline is one of {numbers(legal)}"


def _pipeline(proposal: Proposal) -> Iterator[Violation]:
    stage, framework = proposal.layout.sharding.zero_stage, proposal.framework
    legal = _beside(framework, framework.pipeline_zero_stages)
    if proposal.layout.mesh.pipeline_parallel > 1 and stage in framework.zero_stages and stage not in legal:
        rule = f"{proposal.who} runs no pipeline with ZeRO stage {stage.value}"
        yield refused_stage(proposal, legal, rule=rule)


def _tensor_words(framework: Framework) -> str | None:
    legal = _beside(framework, framework.limits.tensor_zero_stages)
    if not framework.tensor_parallel or legal == framework.zero_stages:
        return None
    return f"zero_stage beside tensor parallelism is one of {numbers(legal)}"


def _tensor(proposal: Proposal) -> Iterator[Violation]:
    stage, framework = proposal.layout.sharding.zero_stage, proposal.framework
    legal = _beside(framework, framework.limits.tensor_zero_stages)
    if proposal.layout.mesh.tensor_parallel > 1 and stage in framework.zero_stages and stage not in legal:
        rule = f"{proposal.who} runs no tensor parallelism with ZeRO stage {stage.value}"
        yield refused_stage(proposal, legal, rule=rule)


def _groups_words(framework: Framework) -> str | None:
    limits = framework.limits
    if limits.grouped_states is None:
        return None
    sets = [" and ".join(states) for states in limits.grouped_states]
    words = (
        f"what groups of fewer than all replicas share is {'; or '.join(sets)}"
        if sets
        else ("all replicas share a state, or none do")
    )
    return f"{words}, over all context-parallel ranks" if limits.shards_over_context else words


def _groups(proposal: Proposal) -> Iterator[Violation]:
    """Check which states groups of fewer than all replicas share, all of them groups of one size."""
    layout = proposal.layout
    mesh, limits = layout.mesh, proposal.framework.limits
    sizes = {state: int(getattr(layout.sharding, state)) for state in STATES}
    parted = {state: size for state, size in sizes.items() if size not in {1, mesh.replicas}}
    if not parted or limits.grouped_states is None:
        return
    size = next(iter(parted.values()))
    is_whole = not limits.shards_over_context or size % mesh.context_parallel == 0
    if tuple(parted) in limits.grouped_states and len(set(parted.values())) == 1 and is_whole:
        return
    for state, size in parted.items():
        yield Violation(
            pointer=f"/plan/sharding/{state}",
            rule=f"{proposal.who} does not share {state} between {size} of {mesh.replicas} replicas here: "
            f"{_groups_words(proposal.framework)}",
            nearest_legal=tuple(sorted({1, mesh.replicas})),
        )


def _alone_words(framework: Framework) -> str | None:
    alone = framework.limits.unsharded_alone
    return "replicas that shard nothing go with neither tensor nor pipeline parallelism" if alone else None


def _alone(proposal: Proposal) -> Iterator[Violation]:
    """Check that unsharded replicas are all there is; context parallelism shards over its ranks."""
    mesh, sharding = proposal.layout.mesh, proposal.layout.sharding
    has_others = mesh.tensor_parallel * mesh.pipeline_parallel > 1
    if mesh.data_parallel > 1 and mesh.context_parallel == 1 and sharding.parameters == 1 and has_others:
        sharded = [stage for stage in proposal.framework.zero_stages if stage is not ZeroStage.NONE]
        rule = f"{proposal.who} replicates without sharding beside no other axis"
        yield refused_stage(proposal, sharded, rule=rule)


_SHARDING: Final = frozenset({Part.SHARDING})
_BESIDE: Final = frozenset({Part.MESH, Part.SHARDING})
_OVER_REPLICAS: Final = frozenset({Part.REPLICAS, Part.SHARDING})
RULES: Final = (
    Rule(name="zero-stages", parts=_SHARDING, words=_stages_words, check=_stages),
    Rule(name="zero-stages-with-pipeline", parts=_BESIDE, words=_pipeline_words, check=_pipeline),
    Rule(name="zero-stages-with-tensor-parallel", parts=_BESIDE, words=_tensor_words, check=_tensor),
    Rule(name="shard-groups", parts=_OVER_REPLICAS, words=_groups_words, check=_groups),
    Rule(name="replicas-alone", parts=_BESIDE, words=_alone_words, check=_alone),
)
