"""How a framework spreads layers over the chunks of a pipeline."""

from collections.abc import Iterator
from typing import Final

from planner.framework import Framework
from planner.layer_splits import even_split, weighed_split
from planner.limits import LayerSplit
from planner.rules.rule import Outcome, Part, Proposal, Rule
from planner.setting import Setting, divisors, nearest_values
from planner.strategy import Layout, Violation

_WORDS: Final = {
    LayerSplit.ENDS: "the stages between the first and the last have equally many layers",
    LayerSplit.EVEN: "all chunks have equally many layers",
    LayerSplit.OWN: "the framework itself spreads the layers over stages",
}


def usual_split(setting: Setting, layout: Layout) -> tuple[int, ...]:
    """Return the layers that each chunk gets where nothing is said about them."""
    turns = layout.schedule.virtual_stages
    chunks = layout.mesh.pipeline_parallel * turns
    if setting.framework.weighs_layers and turns == 1:
        return weighed_split(setting.body, chunks)
    return even_split(setting.num_layers, chunks)


def comes_out(framework: Framework, *, num_layers: int, num_chunks: int) -> bool:
    """Whether the layers can be spread over so many chunks with nothing said about how."""
    is_even = num_layers % num_chunks == 0
    return num_layers >= num_chunks and (is_even or framework.limits.layer_split is LayerSplit.OWN)


def _split_words(framework: Framework) -> str | None:
    return _WORDS.get(framework.limits.layer_split) if framework.pipeline_parallel else None


def _split(proposal: Proposal) -> Iterator[Violation]:
    """Check that each chunk has a number of layers that the framework would give it."""
    given, split = proposal.layers or (), proposal.framework.limits.layer_split
    if len(given) < 2 or _is_given(proposal, given):  # noqa: PLR2004 - one chunk holds everything
        return
    yield Violation(
        pointer="/plan/layers_per_stage",
        rule=f"{_WORDS[split]} in {proposal.who}, not {', '.join(map(str, given))}",
        nearest_legal=_nearest(proposal, given),
    )


def _is_given(proposal: Proposal, given: tuple[int, ...]) -> bool:
    """Whether the framework can give chunks so many layers."""
    match proposal.framework.limits.layer_split:
        case LayerSplit.OWN if proposal.framework.weighs_layers:
            return given == usual_split(proposal.setting, proposal.layout)
        case LayerSplit.OWN:
            # Ends may count as layers besides, and which chunks have one more is up to it.
            return max(given) - min(given) <= 1
        case LayerSplit.ENDS:
            stages = proposal.layout.mesh.pipeline_parallel
            return len({sum(given[stage::stages]) for stage in range(1, stages - 1)}) <= 1
    return len(set(given)) == 1


def _nearest(proposal: Proposal, given: tuple[int, ...]) -> tuple[object, ...]:
    """Return the usual split, or the numbers of chunks for which there is one."""
    if comes_out(proposal.framework, num_layers=sum(given), num_chunks=len(given)):
        return (list(usual_split(proposal.setting, proposal.layout)),)
    return nearest_values(len(given), divisors(sum(given)))


def _silence_words(framework: Framework) -> str | None:
    if framework.uneven_by_default or not framework.pipeline_parallel:
        return None
    return "pipeline_parallel x virtual_stages divides the layers unless layers_per_stage is given"


def _silence_outcome(framework: Framework) -> Outcome:
    return Outcome.SILENT if framework.limits.drops_layers else Outcome.REFUSED


def _silence(proposal: Proposal) -> Iterator[Violation]:
    """Check that layers of which nothing is said come out even: some releases build fewer in silence."""
    layout, layers = proposal.layout, proposal.setting.num_layers
    stages, turns = layout.mesh.pipeline_parallel, layout.schedule.virtual_stages
    if proposal.layers is not None or layers % (stages * turns) == 0:
        return
    word, fixed, given = ("virtual_stages", stages, turns) if turns > 1 else ("pipeline_parallel", 1, stages)
    legal = [degree for degree in divisors(layers) if layers % (degree * fixed) == 0]
    loss = f"; {proposal.who} would build fewer" if proposal.framework.limits.drops_layers else ""
    yield Violation(
        pointer=f"/plan/{word}",
        rule=f"{layers} layers do not split evenly over {stages * turns} chunks{loss}; "
        "layers_per_stage gives another split",
        nearest_legal=nearest_values(given, legal),
    )


_LAYERS: Final = frozenset({Part.MESH, Part.SCHEDULE, Part.LAYERS})
RULES: Final = (
    Rule(name="layers-per-chunk", parts=_LAYERS, words=_split_words, check=_split),
    Rule(
        name="even-layers",
        parts=_LAYERS,
        words=_silence_words,
        check=_silence,
        outcome=_silence_outcome,
    ),
)
