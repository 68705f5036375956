"""How each dimension of a space was decided, in the words of a certificate."""

from collections.abc import Mapping

from planner.communication import RESHARD
from planner.framework import Framework
from planner.job import AttentionKind
from planner.limits import LayerSplit
from planner.search import fewer_devices
from planner.search.offloading import FORBIDDEN, is_searched, tried_words
from planner.search.placings import is_beside_hosts
from planner.search.sending import FORMATS, format_words, kept_words
from planner.search.space import MOST_PASSES, SEARCHED, Space
from planner.setting import (
    EXPERT_AXES,
    Setting,
)
from planner.strategy import ContextParallelScheme, RecomputeMode, Schedule


def dimensions(space: Space) -> dict[str, str]:
    """Return how each dimension of the certificate was decided."""
    words: dict[str, str] = {}
    for word in SEARCHED:
        if word in space.constraints.fixed:
            words[word] = "fixed by user"
        elif word in space.constraints.bounds:
            words[word] = "searched within the user's bounds"
        else:
            words[word] = "searched"
    if words["num_micro_batches"] == "searched":
        words["num_micro_batches"] = f"searched, steps of up to {MOST_PASSES} passes"
    if words["expert_tensor_parallel"] == "searched":
        words["expert_tensor_parallel"] = "searched, within a node or as tensor_parallel goes"
    words["layers_per_stage"] = _layer_words(space.setting.framework)
    words["layers_per_virtual_stage"] = _chunk_words(space.setting)
    words["num_devices"] = fewer_devices.words(space)
    words["ends_of_the_chain"] = "not searched: on the first and the last stage"
    if any(name.folds for name in space.setting.framework.schedules):
        words["ends_of_the_chain"] = "not searched: in the first and the last chunk"
    if not space.setting.splits_over("expert_parallel"):
        words |= dict.fromkeys(EXPERT_AXES, "fixed by the model: it has no experts")
    words["rank_order"] = _order_words(space, words["rank_order"])
    fixed = "fixed by framework" if space.setting.framework.limits.rank_orders else "not searched"
    words["expert_rank_order"] = f"{fixed}: as rank_order goes"
    words["interleave_group_size"] = _turn_words(space)
    words["shard_group"] = _group_words(space)
    words |= {word: format_words(space, word) for word in FORMATS}
    words[RESHARD] = kept_words(space)
    words["offload"] = _offload_words(space, words["offload"])
    words["recompute"] = _recompute_words(space, words["recompute"])
    return words | _fixed_by_framework(space, words)


def _order_words(space: Space, words: str) -> str:
    """Return which orders of ranks on the network's levels were tried."""
    if words != "searched":
        return words
    if len(space.setting.framework.limits.rank_orders) == 1:
        return "fixed by framework"
    if is_beside_hosts(space):
        return "not searched: the default, for what the stages of a node share on its host"
    return "searched: data parallel inside or outside the pipeline, tensor and context parallel innermost"


def _turn_words(space: Space) -> str:
    """Return how many micro-batches a chunk runs at a time."""
    if isinstance(space.fixed("schedule"), Schedule):
        return "fixed by user"
    return "not searched: the fewest micro-batches that come out even"


def _group_words(space: Space) -> str:
    """Return which groups of replicas were tried to share states."""
    grouped = space.setting.framework.limits.grouped_states
    if grouped == ():
        return "fixed by framework"
    if is_beside_hosts(space):
        return "not searched: all replicas, for what the stages of a node share on its host"
    return "searched: as many nearest replicas as a level of links has, or all"


def _recompute_words(space: Space, words: str) -> str:
    """Return which modes and which sets of modules were tried, and for which part of a job."""
    framework = space.setting.framework
    if words != "searched" or len(framework.recompute) == 1:
        return words
    selects = any(option.mode is RecomputeMode.SELECTIVE for option in framework.recompute)
    is_fused = space.setting.job.attention is AttentionKind.FLASH
    if not space.recomputes_alike:
        alone = ", and the attention core, where that is not fused" if selects else ""
        return f"searched by layer: none and full{alone}"
    sets = ", and every set of modules" if selects else ""
    but = " without the fused attention core" if sets and is_fused else ""
    return f"searched, one for the whole job as the framework decides it: none and full{sets}{but}"


def _offload_words(space: Space, words: str) -> str:
    if FORBIDDEN in space.constraints.forbid:
        return "forbidden by user"
    if "offload" in space.constraints.fixed:
        return words
    if any(group.host is None for group in space.setting.cluster.node_groups):
        return "not searched: nothing is known of the hosts"
    tried = tried_words(space.setting.framework.limits.offload)
    if tried and not space.looks_at_hosts:
        return "not searched: plans fit without it"
    return f"searched: {'; '.join(tried)}" if tried and is_searched(space) else "fixed by framework"


def _chunk_words(setting: Setting) -> str:
    if len(setting.body.classes) == 1:
        return "not searched: a stage's layers spread evenly over its chunks"
    words = (
        "not searched: chunks of nearly as many layers each, those recomputed that free most bytes per second"
    )
    if setting.framework.splits_backward:
        words += "; so are they on stages of one chunk whose gradients of weights are made apart"
    return words


def _layer_words(framework: Framework) -> str:
    match framework.limits.layer_split:
        case LayerSplit.ANY:
            return "searched"
        case LayerSplit.ENDS:
            return "not searched: equally many"
    return "fixed by framework"


def _fixed_by_framework(space: Space, words: Mapping[str, str]) -> dict[str, str]:
    framework = space.setting.framework
    lone = {
        "schedule": len(framework.schedules) == 1,
        "zero_stage": len(framework.zero_stages) == 1,
        "recompute": len(framework.recompute) == 1,
        "context_parallel": not framework.context_parallel,
        "context_parallel_scheme": len(framework.limits.context_parallel_schemes) <= 1,
        "all_to_all_degree": ContextParallelScheme.MIXED not in framework.limits.context_parallel_schemes,
    }
    return {word: "fixed by framework" for word, only in lone.items() if only and words[word] == "searched"}
