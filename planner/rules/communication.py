"""In what a framework sends parameters and gradients between replicas, and what it keeps gathered."""

from collections.abc import Iterator
from typing import Final

from planner.communication import (
    GATHER,
    REDUCE,
    choice_of,
    choices_of,
    is_asked,
    is_decided,
    legal_formats,
)
from planner.framework import Framework
from planner.rules.rule import Outcome, Part, Proposal, Rule
from planner.strategy import Violation, ZeroStage
from planner.wire import WireChoices

REPLICA_WORDS: Final = {GATHER: "gathers parameters", REDUCE: "reduces gradients"}


def _listed(choices: WireChoices) -> str:
    """Return choices as people list them."""
    words = []
    for choice in choices:
        stages = ", ".join(str(stage.value) for stage in choice.zero_stages)
        words.append(f"{choice.format} with ZeRO stage {stages} ({choice.words})")
    return "; ".join(dict.fromkeys(words))


def _gather_words(framework: Framework) -> str:
    found = framework.limits.gathers
    only = "parameters are gathered as products read them"
    return f"{only}, or as {_listed(found)}" if found else only


def _reduce_words(framework: Framework) -> str:
    found = framework.limits.reductions
    only = "gradients are reduced as they are accumulated"
    return f"{only}, or as {_listed(found)}" if found else only


def _formats(proposal: Proposal, word: str) -> Iterator[Violation]:
    """Check that the framework sends in a format under the sharding, at the job's precision."""
    setting, sharding = proposal.setting, proposal.layout.sharding
    if not is_asked(setting, sharding, word):
        return
    choice, dtype = choice_of(setting, sharding, word), getattr(sharding, word)
    if choice is not None and not is_decided(setting, choice):
        return
    where = f"ZeRO stage {sharding.zero_stage.value} of {setting.job.precision}"
    rule = f"{proposal.who} {REPLICA_WORDS[word]} in no {dtype} with {where}"
    if choice is not None:
        rule = f"the job's gradient_dtype says in what {proposal.who} {REPLICA_WORDS[word]}"
    yield Violation(
        pointer=f"/plan/sharding/{word}", rule=rule, nearest_legal=legal_formats(setting, sharding, word)
    )


def _gathers(proposal: Proposal) -> Iterator[Violation]:
    yield from _formats(proposal, GATHER)
    setting, sharding = proposal.setting, proposal.layout.sharding
    choice, job = choice_of(setting, sharding, GATHER), setting.job
    if choice is None or not choice.format.is_scaled or not setting.framework.shards_quantized:
        return
    if job.trainable.rests_narrow:
        yield Violation(
            pointer=f"/plan/sharding/{GATHER}",
            rule=f"parameters at rest in {job.trainable.base_format} are gathered as they rest",
            nearest_legal=legal_formats(setting, sharding, GATHER)[:1],
        )


def _reduces(proposal: Proposal) -> Iterator[Violation]:
    yield from _formats(proposal, REDUCE)


def _exchange_words(framework: Framework) -> str | None:
    exchanged = [choice.format for choice in framework.limits.reductions if choice.exchanges]
    if not exchanged:
        return None
    return (
        f"{', '.join(exchanged)} reductions take all ranks of several whole nodes, beside no tensor, "
        "pipeline or expert parallelism, and no update that multiplies whole matrices"
    )


def _exchanges(proposal: Proposal) -> Iterator[Violation]:
    """Check that exchanges within nodes and between them reach every rank of the job, as they must."""
    setting, layout = proposal.setting, proposal.layout
    mesh, choice = layout.mesh, choice_of(setting, layout.sharding, REDUCE)
    if choice is None or not choice.exchanges:
        return
    per_node = setting.cluster.node_groups[0].devices_per_node
    is_whole = mesh.world_size == mesh.replicas == layout.sharding.gradients
    spreads = mesh.expert_parallel * mesh.expert_tensor_parallel > 1
    fills_nodes = mesh.world_size % per_node == 0 and mesh.world_size > per_node
    if is_whole and fills_nodes and not spreads and not setting.job.optimizer.newton_schulz_steps:
        return
    yield Violation(
        pointer=f"/plan/sharding/{REDUCE}",
        rule=f"{proposal.who}: {_exchange_words(proposal.framework)}; a node has {per_node} devices",
        nearest_legal=tuple(
            dtype
            for dtype in legal_formats(setting, layout.sharding, REDUCE)
            if dtype not in {each.format for each in choices_of(setting, REDUCE) if each.exchanges}
        ),
    )


def _kept_words(framework: Framework) -> str | None:
    if framework.limits.keeps_gathered is not None or ZeroStage.PARAMETERS not in framework.zero_stages:
        return None
    return "what ZeRO stage 3 gathers is freed after every pass"


def _kept(proposal: Proposal) -> Iterator[Violation]:
    """Check that parameters stay gathered only where the framework has a switch for it."""
    sharding, framework = proposal.layout.sharding, proposal.framework
    is_told = sharding.zero_stage is ZeroStage.PARAMETERS and sharding.parameters > 1
    if is_told and not sharding.reshard_after_forward and framework.limits.keeps_gathered is None:
        yield Violation(
            pointer="/plan/sharding/reshard_after_forward",
            rule=f"{proposal.who} frees gathered parameters after every pass",
            nearest_legal=(True,),
        )


_SHARDING: Final = frozenset({Part.SHARDING})
EXCHANGE: Final = Rule(
    name="exchanged-reductions",
    parts=frozenset({Part.MESH, Part.SHARDING}),
    words=_exchange_words,
    check=_exchanges,
    # On one node it reduces as without; over other axes its groups are not those of replicas.
    outcome=lambda _framework: Outcome.SILENT,
)
RULES: Final = (
    Rule(name="gathered-formats", parts=_SHARDING, words=_gather_words, check=_gathers),
    Rule(name="reduced-formats", parts=_SHARDING, words=_reduce_words, check=_reduces),
    EXCHANGE,
    Rule(name="gathered-parameters", parts=_SHARDING, words=_kept_words, check=_kept),
)
