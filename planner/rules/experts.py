"""How a framework spreads mixtures of experts: over which ranks, cut how, beside which other axes."""

from collections.abc import Iterator
from typing import Final

from planner.framework import Framework
from planner.frameworks import FRAMEWORKS
from planner.limits import ExpertLimits, ExpertRanks, ExpertTensor
from planner.rules.rule import Outcome, Part, Proposal, Rule
from planner.rules.sharding import numbers, refused_stage
from planner.setting import degree_is_legal, divisors, nearest_values
from planner.strategy import Mesh, Sharding, Violation, ZeroStage
from planner.workload.dispatch import EXPERT_AXIS, EXPERT_TENSOR_AXIS


def _limits(proposal: Proposal) -> ExpertLimits:
    return proposal.framework.limits.experts


def _is_bound(proposal: Proposal) -> bool:
    """Whether the framework's own layers run the experts."""
    spreads = proposal.layout.mesh.expert_parallel > 1
    return proposal.setting.has_experts and (_limits(proposal).own_layers or spreads)


def _exist_words(framework: Framework) -> str | None:
    return None if framework.limits.experts.exist else "models have no mixture of experts"


def _exist(proposal: Proposal) -> Iterator[Violation]:
    if proposal.setting.has_experts:
        others = tuple(name for name, other in FRAMEWORKS.items() if other.limits.experts.exist)
        yield Violation(
            pointer="/job/framework",
            rule=f"{proposal.who} trains no mixture of experts",
            nearest_legal=others,
        )


def _spread_words(framework: Framework) -> str | None:
    experts = framework.limits.experts
    return "has no expert_parallel" if experts.exist and not experts.spread else None


def _spread(proposal: Proposal) -> Iterator[Violation]:
    if proposal.setting.has_experts and proposal.layout.mesh.expert_parallel > 1:
        yield Violation(
            pointer="/plan/expert_parallel",
            rule=f"{proposal.who} has no expert_parallel",
            nearest_legal=(1,),
        )


_RANKS: Final = {
    ExpertRanks.STAGE: "expert_parallel x expert_tensor_parallel divides data x context x tensor parallel",
    ExpertRanks.DATA: "expert_parallel divides data_parallel",
    ExpertRanks.SHARDS: "expert_parallel x expert_tensor_parallel divides the ranks that share parameters, "
    "times tensor_parallel",
}


def _ranks_words(framework: Framework) -> str | None:
    experts = framework.limits.experts
    return _RANKS[experts.ranks] if experts.spread and experts.ranks is not ExpertRanks.STAGE else None


def _ranks_outcome(framework: Framework) -> Outcome:
    is_checked = framework.limits.experts.ranks is not ExpertRanks.SHARDS
    return Outcome.REFUSED if is_checked else Outcome.SILENT


def _ranks(proposal: Proposal) -> Iterator[Violation]:
    """Check that experts are spread over whole groups of the ranks that hold them."""
    mesh, setting = proposal.layout.mesh, proposal.setting
    ranks = _expert_ranks(_limits(proposal).ranks, mesh, proposal.layout.sharding)
    other = 1 if _limits(proposal).ranks is ExpertRanks.DATA else mesh.expert_tensor_parallel
    if mesh.expert_parallel == 1 or ranks % (mesh.expert_parallel * other) == 0:
        return
    legal = [
        degree
        for degree in divisors(ranks)
        if ranks % (degree * other) == 0 and degree_is_legal(setting, EXPERT_AXIS, degree)
    ]
    yield Violation(
        pointer="/plan/expert_parallel",
        rule=f"{proposal.who} spreads experts over {ranks} ranks here: {_RANKS[_limits(proposal).ranks]}",
        nearest_legal=nearest_values(mesh.expert_parallel, legal),
    )


def _expert_ranks(over: ExpertRanks, mesh: Mesh, sharding: Sharding) -> int:
    if over is ExpertRanks.DATA:
        return mesh.data_parallel
    return mesh.tensor_parallel * (sharding.parameters if over is ExpertRanks.SHARDS else mesh.replicas)


def _tensor_words(framework: Framework) -> str | None:
    experts = framework.limits.experts
    if not experts.exist or not framework.tensor_parallel or experts.tensor is ExpertTensor.ANY:
        return None
    return f"expert_tensor_parallel is {experts.tensor.value}"


def _tensor(proposal: Proposal) -> Iterator[Violation]:
    mesh, setting = proposal.layout.mesh, proposal.setting
    if not setting.has_experts:
        return
    legal = _limits(proposal).tensor.degrees(
        tensor_parallel=mesh.tensor_parallel, expert_parallel=mesh.expert_parallel
    )
    if legal is not None and mesh.expert_tensor_parallel not in legal:
        whole = [degree for degree in legal if degree_is_legal(setting, EXPERT_TENSOR_AXIS, degree)]
        yield Violation(
            pointer="/plan/expert_tensor_parallel",
            rule=f"expert_tensor_parallel is {_limits(proposal).tensor.value} in {proposal.who}, "
            f"not {mesh.expert_tensor_parallel}",
            nearest_legal=tuple(sorted(set(whole))),
        )


def _sequence_words(framework: Framework) -> str | None:
    needs = framework.limits.experts.need_sequence_parallel
    return "models with experts run tensor parallelism with sequence_parallel only" if needs else None


def _sequence(proposal: Proposal) -> Iterator[Violation]:
    mesh = proposal.layout.mesh
    if proposal.setting.has_experts and mesh.tensor_parallel > 1 and not mesh.sequence_parallel:
        yield Violation(
            pointer="/plan/sequence_parallel",
            rule=f"{proposal.who} trains experts beside tensor parallelism with sequence parallelism only",
            nearest_legal=(True,),
        )


def _pipeline_words(framework: Framework) -> str | None:
    return None if framework.limits.experts.with_pipeline else "models with experts run in no pipeline"


def _pipeline(proposal: Proposal) -> Iterator[Violation]:
    if _is_bound(proposal) and proposal.layout.mesh.pipeline_parallel > 1:
        yield Violation(
            pointer="/plan/pipeline_parallel",
            rule=f"{proposal.who} runs experts in no pipeline",
            nearest_legal=(1,),
        )


def _zero_words(framework: Framework) -> str | None:
    stages = framework.limits.experts.zero_stages
    if stages == tuple(ZeroStage):
        return None
    return f"zero_stage is one of {numbers(stages)} where its own layers hold the experts"


def _zero(proposal: Proposal) -> Iterator[Violation]:
    stage, legal = proposal.layout.sharding.zero_stage, _limits(proposal).zero_stages
    if _is_bound(proposal) and stage not in legal:
        rule = f"{proposal.who} runs its layers of experts with no ZeRO stage {stage.value}"
        yield refused_stage(proposal, legal, rule=rule)


def _both_words(framework: Framework) -> str | None:
    stages = framework.limits.experts.tensor_zero_stages
    if stages == tuple(ZeroStage):
        return None
    return f"zero_stage beside expert and tensor parallelism together is one of {numbers(stages)}"


def _both(proposal: Proposal) -> Iterator[Violation]:
    mesh, stage = proposal.layout.mesh, proposal.layout.sharding.zero_stage
    legal = _limits(proposal).tensor_zero_stages
    if _is_bound(proposal) and mesh.expert_parallel > 1 and mesh.tensor_parallel > 1 and stage not in legal:
        rule = f"{proposal.who} runs expert beside tensor parallelism with no ZeRO stage {stage.value}"
        yield refused_stage(proposal, legal, rule=rule)


_MESH: Final = frozenset({Part.MESH})
_SHARDED: Final = frozenset({Part.MESH, Part.SHARDING})
RULES: Final = (
    Rule(name="no-experts", parts=frozenset(), words=_exist_words, check=_exist),
    Rule(name="no-expert-parallel", parts=_MESH, words=_spread_words, check=_spread),
    Rule(
        name="expert-ranks",
        parts=_SHARDED,
        words=_ranks_words,
        check=_ranks,
        outcome=_ranks_outcome,
    ),
    Rule(name="expert-tensor-parallel", parts=_MESH, words=_tensor_words, check=_tensor),
    Rule(name="experts-with-sequence-parallel", parts=_MESH, words=_sequence_words, check=_sequence),
    Rule(name="experts-with-pipeline", parts=_MESH, words=_pipeline_words, check=_pipeline),
    Rule(name="experts-with-zero-stage", parts=_SHARDED, words=_zero_words, check=_zero),
    Rule(name="experts-with-tensor-and-zero-stage", parts=_SHARDED, words=_both_words, check=_both),
)
