"""What a framework can keep on the host, and beside what."""

from collections.abc import Iterator
from typing import Final

from planner.framework import Framework
from planner.offload_limits import GradientSite, HostShare, OffloadLimits
from planner.rules.rule import Outcome, Part, Proposal, Rule
from planner.rules.sharding import numbers, refused_stage
from planner.strategy import Layout, RecomputeMode, Violation, ZeroStage

OPTIMIZER: Final = "/plan/offload/optimizer"
PARAMETERS: Final = "/plan/offload/parameters"
GRADIENTS: Final = "/plan/offload/gradients"
ACTIVATIONS: Final = "/plan/offload/activations"


def _limits(proposal: Proposal) -> OffloadLimits:
    return proposal.framework.limits.offload


def _shares(layout: Layout) -> tuple[tuple[str, str, float], ...]:
    on_host = layout.on_host
    return (
        (OPTIMIZER, "optimizer", on_host.optimizer),
        (PARAMETERS, "parameters", on_host.parameters),
        *((ACTIVATIONS, "activations", share) for share in sorted(set(layout.activations))),
    )


_NAMES: Final = {
    "optimizer": "its optimizer states",
    "parameters": "parameters",
    "activations": "activations",
}


def _states_words(framework: Framework) -> str | None:
    limits = framework.limits.offload
    bound = [word for word in _NAMES if getattr(limits, word) is not HostShare.ANY]
    if not bound:
        return None
    words = "; ".join(f"{getattr(limits, word).value} {_NAMES[word]} is on the host" for word in bound)
    return f"{words} ({limits.unpriced} cannot be priced yet)" if limits.unpriced else words


def _states(proposal: Proposal) -> Iterator[Violation]:
    limits = _limits(proposal)
    for pointer, word, share in _shares(proposal.layout):
        site: HostShare = getattr(limits, word)
        if limits.together and word == "parameters":
            continue
        if not site.allows(share):
            rule = f"{proposal.who} keeps {site.value} {_NAMES[word]} on the host"
            if limits.unpriced:
                rule += f"; its {limits.unpriced} cannot be priced yet"
            yield Violation(pointer=pointer, rule=rule, nearest_legal=_nearest(site, share))


def _nearest(site: HostShare, share: float) -> tuple[float, ...]:
    return tuple(sorted(site.ends, key=lambda end: abs(end - share)))


def _together_words(framework: Framework) -> str | None:
    together = framework.limits.offload.together
    return "parameters, gradients and optimizer states are on the host together" if together else None


def _together(proposal: Proposal) -> Iterator[Violation]:
    on_host = proposal.layout.on_host
    shares = (on_host.optimizer, on_host.parameters, on_host.gradients)
    if len(set(shares)) > 1:
        yield Violation(
            pointer=OPTIMIZER,
            rule=f"{proposal.who} moves parameters, gradients and optimizer states to the host together",
            nearest_legal=(1.0, 0.0),
        )


def _gradients_words(framework: Framework) -> str | None:
    limits = framework.limits.offload
    if limits.gradients is GradientSite.ANYWHERE or limits.together or not limits.has_states:
        return None
    return f"gradients {limits.gradients.value}"


def _gradients(proposal: Proposal) -> Iterator[Violation]:
    limits, on_host = _limits(proposal), proposal.layout.on_host
    legal = 0.0 if limits.gradients is GradientSite.DEVICE else on_host.optimizer
    if on_host.gradients != legal:
        rule = f"gradients {limits.gradients.value} in {proposal.who}"
        yield Violation(pointer=GRADIENTS, rule=rule, nearest_legal=(legal,))


def _zero_words(framework: Framework) -> str | None:
    limits = framework.limits.offload
    if not limits.has_states or limits.zero_stages == tuple(ZeroStage):
        return None
    words = f"optimizer states are on the host with ZeRO stage {numbers(limits.zero_stages)}"
    if limits.fraction_zero_stages != tuple(ZeroStage):
        words += f", a part of them with {numbers(limits.fraction_zero_stages)}"
    if limits.parameters is not HostShare.NONE and limits.parameter_zero_stages != limits.zero_stages:
        words += f", parameters with {numbers(limits.parameter_zero_stages)}"
    return words


def _zero(proposal: Proposal) -> Iterator[Violation]:
    """Check the ZeRO stage; one replica has nothing to share, whatever its stage is called."""
    limits, layout = _limits(proposal), proposal.layout
    on_host, stage = layout.on_host, layout.sharding.zero_stage
    is_part = 0 < on_host.optimizer < 1
    bound = (
        (on_host.optimizer > 0, limits.zero_stages, "optimizer states on the host"),
        (is_part, limits.fraction_zero_stages, "a part of the optimizer states on the host"),
        (on_host.parameters > 0, limits.parameter_zero_stages, "parameters on the host"),
    )
    for is_used, legal, what in bound:
        if is_used and stage not in legal and layout.mesh.replicas > 1:
            rule = f"{proposal.who} keeps no {what} with ZeRO stage {stage.value}"
            yield refused_stage(proposal, legal, rule=rule)
            return


def _zero_outcome(framework: Framework) -> Outcome:
    # DeepSpeed's parser takes offload_param and ratio at any stage.
    is_read = framework.limits.offload.fraction_zero_stages == tuple(ZeroStage)
    return Outcome.REFUSED if is_read else Outcome.SILENT


def _pipeline_words(framework: Framework) -> str | None:
    limits = framework.limits.offload
    if not framework.pipeline_parallel:
        return None
    words = [] if limits.with_pipeline or not limits.has_states else ["no states"]
    if not limits.activations_with_pipeline and limits.activations is not HostShare.NONE:
        words.append("no activations")
    return f"{' and '.join(words)} on the host beside a pipeline" if words else None


def _pipeline(proposal: Proposal) -> Iterator[Violation]:
    limits, layout = _limits(proposal), proposal.layout
    states = layout.on_host.is_any and not limits.with_pipeline
    activations = any(layout.activations) and not limits.activations_with_pipeline
    if layout.mesh.pipeline_parallel > 1 and (states or activations):
        yield Violation(
            pointer=OPTIMIZER if states else ACTIVATIONS,
            rule=f"{proposal.who} keeps no {'states' if states else 'activations'} on the host in a pipeline",
            nearest_legal=(0.0,),
        )


def _recompute_words(framework: Framework) -> str | None:
    limits = framework.limits.offload
    modes = [mode for mode in RecomputeMode if mode in limits.activations_beside]
    if limits.activations is HostShare.NONE or len(modes) == len(RecomputeMode):
        return None
    return f"activations are on the host beside recompute {' or '.join(modes)}"


def _recompute(proposal: Proposal) -> Iterator[Violation]:
    """Check what layers compute again whose activations are on the host."""
    legal, ways = _limits(proposal).activations_beside, proposal.layout.ways
    refused = [way.recompute.mode for way in ways if way.activations and way.recompute.mode not in legal]
    if refused:
        yield Violation(
            pointer="/plan/recompute",
            rule=f"{proposal.who} keeps no activations on the host beside recompute {refused[0]}",
            nearest_legal=tuple(mode.value for mode in legal),
        )


def _alike_words(framework: Framework) -> str | None:
    alike = framework.limits.offload.activations_alike
    return "all layers that are recomputed keep what is left on the host, or none does" if alike else None


def _alike(proposal: Proposal) -> Iterator[Violation]:
    legal, ways = _limits(proposal).activations_beside, proposal.layout.ways
    shares = {way.activations for way in ways if way.recompute.mode in legal}
    if len(shares) > 1:
        yield Violation(
            pointer=ACTIVATIONS,
            rule=f"{proposal.who} keeps the activations of all recomputed layers on the host, or of none",
            nearest_legal=(max(shares), 0.0),
        )


def _layer_words(framework: Framework) -> str | None:
    keeps = framework.limits.offload.keeps_a_layer
    return "the activations of one layer at least stay on the device" if keeps else None


def _layer(proposal: Proposal) -> Iterator[Violation]:
    if proposal.layout.activations and all(proposal.layout.activations):
        yield Violation(
            pointer=ACTIVATIONS,
            rule=f"{proposal.who} keeps the activations of at least one layer on the device",
            nearest_legal=(0.0,),
        )


def _optimizers_words(framework: Framework) -> str | None:
    has_states = framework.limits.offload.optimizer is not HostShare.NONE
    return "optimizers that multiply matrices (Muon) update on the device" if has_states else None


def _optimizers(proposal: Proposal) -> Iterator[Violation]:
    if proposal.layout.on_host.optimizer > 0 and proposal.setting.job.optimizer.newton_schulz_steps:
        rule = "an optimizer that multiplies matrices has no update on the host that could be priced"
        yield Violation(pointer=OPTIMIZER, rule=rule, nearest_legal=(0.0,))


_OFFLOAD: Final = frozenset({Part.OFFLOAD})
_BESIDE: Final = frozenset({Part.OFFLOAD, Part.MESH})
_SHARDED: Final = frozenset({Part.OFFLOAD, Part.MESH, Part.SHARDING})
_RECOMPUTED: Final = frozenset({Part.OFFLOAD, Part.RECOMPUTE})
RULES: Final = (
    Rule(name="host-shares", parts=_OFFLOAD, words=_states_words, check=_states),
    Rule(name="host-together", parts=_OFFLOAD, words=_together_words, check=_together),
    Rule(name="host-gradients", parts=_OFFLOAD, words=_gradients_words, check=_gradients),
    Rule(name="host-with-zero-stage", parts=_SHARDED, words=_zero_words, check=_zero, outcome=_zero_outcome),
    Rule(name="host-with-pipeline", parts=_BESIDE, words=_pipeline_words, check=_pipeline),
    Rule(name="host-with-recompute", parts=_RECOMPUTED, words=_recompute_words, check=_recompute),
    Rule(name="host-activations-alike", parts=_RECOMPUTED, words=_alike_words, check=_alike),
    Rule(name="host-keeps-a-layer", parts=_OFFLOAD, words=_layer_words, check=_layer),
    Rule(name="host-optimizer", parts=_OFFLOAD, words=_optimizers_words, check=_optimizers),
)
