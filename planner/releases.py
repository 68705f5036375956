"""The releases of frameworks whose rules are known, and what older ones did not have.

Sources: the packages of Megatron-core 0.9.0 to 0.19.2, torchtitan 0.1.0 to 0.3.0 and DeepSpeed 0.16.9 to
0.19.8, release by release.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.errors import UnknownName
from planner.framework import SELECTIVE_RECOMPUTE, Framework
from planner.framework_limits import MEGATRON_MODULES, WITHOUT_SHARDED_PARAMETERS
from planner.job import Precision
from planner.limits import ExpertTensor, LayerSplit
from planner.offload_limits import MEGATRON_OFFLOAD_BEFORE_0_12
from planner.strategy import DEFAULT_RANK_ORDER, ContextParallelScheme, ZeroStage


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """How a framework was before a release."""

    release: str
    before: Callable[[Framework], Framework]


def _without_precision(precision: Precision) -> Callable[[Framework], Framework]:
    return lambda traits: replace(traits, refused_precisions=(*traits.refused_precisions, precision))


def _one_rank_per_head(traits: Framework) -> Framework:
    return replace(traits, limits=replace(traits.limits, copies_heads=False))


def _without_shared_experts(traits: Framework) -> Framework:
    modules = {name: own for name, own in MEGATRON_MODULES.items() if name != "shared_experts"}
    return replace(traits, limits=replace(traits.limits, recompute_modules=modules))


def _without_layout(traits: Framework) -> Framework:
    """Return traits without --pipeline-model-parallel-layout and with layers that are lost in silence."""
    return replace(traits, limits=replace(traits.limits, layer_split=LayerSplit.ENDS, drops_layers=True))


def _without_modules_and_fsdp(traits: Framework) -> Framework:
    core = dict.fromkeys(("core_attn",), SELECTIVE_RECOMPUTE.modules[0])
    return replace(
        traits,
        zero_stages=(ZeroStage.NONE, ZeroStage.OPTIMIZER),
        refused_precisions=(*traits.refused_precisions, Precision.MXFP8),
        limits=replace(traits.limits, recompute_modules=core, offload=MEGATRON_OFFLOAD_BEFORE_0_12),
    )


def _without_own_expert_tensor(traits: Framework) -> Framework:
    """Return traits whose experts are cut as the rest is, and whose chunks take turns in whole groups."""
    limits = replace(
        traits.limits,
        context_parallel_schemes=(ContextParallelScheme.RING,),
        rank_orders=(DEFAULT_RANK_ORDER,),
        grouped_states=(),
        interleaved_fill_stages=True,
        experts=replace(traits.limits.experts, tensor=ExpertTensor.SAME),
    )
    return replace(traits, limits=limits)


def _replicas_alone(traits: Framework) -> Framework:
    """Return traits of torchtitan's DDP, which raised beside any other axis, its cut and its rotation."""
    experts = replace(traits.limits.experts, tensor=ExpertTensor.SAME_OR_ONE_IF_SPREAD)
    limits = replace(
        traits.limits,
        unsharded_alone=True,
        # --context_parallel_rotate_method.
        context_parallel_schemes=(ContextParallelScheme.ALL_GATHER, ContextParallelScheme.RING),
        experts=experts,
    )
    return replace(traits, limits=limits)


def _without_own_gradient_format(traits: Framework) -> Framework:
    """Return traits of a Megatron FSDP without --megatron-fsdp-grad-comm-dtype."""
    accumulated = tuple(each for each in traits.limits.reductions if each.accumulates)
    return replace(traits, limits=replace(traits.limits, reductions=accumulated))


def _quantizing_fp16_alone(traits: Framework) -> Framework:
    """Return traits whose kernels take the bits of BF16 weights for FP16: nothing converts them."""
    gathers = (replace(each, precisions=(Precision.FP16,)) for each in traits.limits.gathers)
    return replace(traits, limits=replace(traits.limits, gathers=tuple(gathers)))


def _without_expert_parallel(traits: Framework) -> Framework:
    experts = replace(traits.limits.experts, spread=False, tensor=ExpertTensor.SAME)
    return replace(traits, limits=replace(traits.limits, experts=experts))


def _without_auto_ep(traits: Framework) -> Framework:
    """Return traits of DeepSpeed's own MoE layer, and of AutoTP that stage 3 was not validated with."""
    experts = replace(traits.limits.experts, zero_stages=WITHOUT_SHARDED_PARAMETERS)
    limits = replace(traits.limits, tensor_zero_stages=WITHOUT_SHARDED_PARAMETERS, experts=experts)
    return replace(traits, limits=limits)


CHANGES: Final[Mapping[str, tuple[Change, ...]]] = {
    "megatron-core": (
        Change(release="0.17", before=_without_own_gradient_format),
        Change(release="0.16", before=_one_rank_per_head),
        Change(release="0.15", before=_without_precision(Precision.NVFP4)),
        Change(release="0.14", before=_without_shared_experts),
        Change(release="0.13", before=_without_precision(Precision.FP8_BLOCK)),
        Change(release="0.13", before=_without_layout),
        Change(release="0.12", before=_without_modules_and_fsdp),
        Change(release="0.10", before=_without_own_expert_tensor),
    ),
    "torchtitan": (
        Change(release="0.3", before=_replicas_alone),
        Change(release="0.2", before=_without_expert_parallel),
    ),
    "deepspeed": (
        Change(release="0.19", before=_without_auto_ep),
        Change(release="0.19", before=_quantizing_fp16_alone),
    ),
}
"""Newest first."""


def in_release(framework: Framework, version: str | None, *, pointer: str) -> Framework:
    """Return a framework as a release of it is; None for the newest one that is known.

    "0.16", "0.16.1" and "v0.16.1" name the same rules. Raises UnknownName with the nearest known ones.
    """
    if version is None:
        return framework
    known = next((release for release in framework.versions if _is_of(version, release)), None)
    if known is None:
        raise UnknownName(
            f"no rules are known of {framework.name} {version}",
            pointer=pointer,
            nearest_legal=_nearest(framework, version),
        )
    for change in CHANGES.get(framework.name, ()):
        if _numbers(known) < _numbers(change.release):
            framework = change.before(framework)
    return replace(framework, version=known)


def _is_of(version: str, release: str) -> bool:
    """Whether a version is one of a release's: its numbers begin with the release's."""
    numbers = _numbers(release)
    return bool(numbers) and _numbers(version)[: len(numbers)] == numbers


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; none where it does not begin with one."""
    parts = version.strip().lower().removeprefix("core_").removeprefix("v").split(".")
    numbers = []
    for part in parts:
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _nearest(framework: Framework, version: str) -> tuple[str, ...]:
    """Return all known releases, the nearest first; the newest first where the version has no number."""
    known = framework.versions
    older = (
        sum(_numbers(release) < _numbers(version) for release in known) if _numbers(version) else len(known)
    )
    order = sorted(range(len(known)), key=lambda number: abs(2 * (number - older) + 1))
    return tuple(known[number] for number in order)
