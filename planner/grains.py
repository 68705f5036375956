"""For which part of a job a framework lets each decision differ: all of it, a pipeline's chunk, a layer."""

from collections.abc import Mapping
from typing import Final

from planner.framework import Framework, Grain
from planner.limits import LayerSplit
from planner.offload_limits import HostShare

DEGREES: Final = (
    "data_parallel",
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "expert_parallel",
    "expert_tensor_parallel",
    "sequence_parallel",
)
TOLD: Final = frozenset({LayerSplit.ANY, LayerSplit.ENDS})
"""Splits of which a chunk's part can be told."""


def decision_grains(framework: Framework) -> Mapping[str, Grain]:
    """Return the grain of each decision, by its word in a plan.

    A degree that differs from stage to stage, or a schedule, no framework has. Of what is offloaded
    activations alone may differ from layer to layer.
    """
    tells_layers = framework.pipeline_parallel and framework.limits.layer_split in TOLD
    whole = dict.fromkeys((*DEGREES, "micro_batch_size", "schedule"), Grain.JOB)
    return {
        **whole,
        "sharding": Grain.LAYER if framework.limits.shards_modules_apart else Grain.JOB,
        "layers_per_stage": Grain.CHUNK if tells_layers else Grain.JOB,
        "recompute": framework.recompute_grain,
        "offload": Grain.JOB if framework.limits.offload.activations is HostShare.NONE else Grain.LAYER,
    }
