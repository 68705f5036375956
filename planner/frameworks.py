"""The training frameworks that the planner knows, by their traits.

Sources: the frameworks' own parsers and schedules in the releases named here (Megatron-core 0.19,
Megatron Bridge 0.6, PyTorch 2.13, torchtitan 0.3, DeepSpeed 0.19, nanotron 0.4, llm-foundry, MaxText
0.2) and the papers beside a trait.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner import framework_limits
from planner.errors import UnknownName
from planner.footprints import footprint_of
from planner.framework import (
    FP32_BYTES,
    FULL_RECOMPUTE,
    NO_RECOMPUTE,
    SELECTIVE_RECOMPUTE,
    ChosenFormat,
    Framework,
    Grain,
)
from planner.job import Precision
from planner.names import nearest_names
from planner.parameters import pace_of
from planner.releases import in_release
from planner.strategy import ScheduleName, ZeroStage
from planner.workload.keeping import EAGER, FUSED, Keeping

_ALL_RECOMPUTE: Final = (NO_RECOMPUTE, SELECTIVE_RECOMPUTE, FULL_RECOMPUTE)
_WHOLE_LAYERS: Final = (NO_RECOMPUTE, FULL_RECOMPUTE)
_WITHOUT_SHARDED_GRADIENTS: Final = (ZeroStage.NONE, ZeroStage.OPTIMIZER)
_TORCH_UPDATE_PACE: Final = 56.0 / 8.2
"""torch.optim on the host over DeepSpeed's CPU-Adam, on one host (deepspeedai/DeepSpeed pull 735)."""
_BEYOND_SCALED_FP8: Final = (Precision.FP8_BLOCK, Precision.MXFP8, Precision.NVFP4)
"""What needs more than one scale per tensor."""

MEGATRON_CORE: Final = Framework(
    name="megatron-core",
    pace=pace_of("megatron-core"),
    description="Megatron-core, as Megatron-LM and NeMo run it",
    schedules=(ScheduleName.ONE_FORWARD_ONE_BACKWARD, ScheduleName.INTERLEAVED),
    zero_stages=tuple(ZeroStage),
    recompute=_ALL_RECOMPUTE,
    recompute_grain=Grain.JOB,
    gradient_bytes={Precision.FP16: 2},
    # --main-grads-dtype, --main-params-dtype and --exp-avg-dtype of its precision-aware optimizer.
    chosen_formats=tuple(ChosenFormat),
    keeps_master_weights=True,
    vocabulary_multiple=128,
    default_zero_stage=ZeroStage.OPTIMIZER,
    uneven_by_default=False,
    empty_ends=True,
    # Megatron-LM's fp16 recipes predate its fused attention, which is off unless asked for there.
    unfused_precisions=(Precision.FP16,),
    # Transformer Engine's cuDNN attention, alone in taking a learnt sink, computes every block and masks it.
    skips_beside_sinks=False,
    scatters_transfers=True,
    keeps_narrow_inputs=True,
    # TELayerNormColumnParallelLinear; see get_gpt_layer_with_transformer_engine_spec.
    kept=replace(FUSED, joins_norms=True),
    # --overlap-cpu-optimizer-d2h-h2d of its HybridDeviceOptimizer, which steps a fused AdamW.
    updates_host_beside_copies=True,
    # --cuda-graph-impl.
    compiled_as="cuda-graphs",
    limits=framework_limits.MEGATRON,
    versions=("0.9", "0.10", "0.11", "0.12", "0.13", "0.14", "0.15", "0.16", "0.17", "0.18", "0.19"),
    version="0.19",
)

MEGATRON_BRIDGE: Final = replace(
    MEGATRON_CORE,
    name="megatron-bridge",
    pace=pace_of("megatron-bridge"),
    description="Megatron Bridge: recipes over Megatron-core",
    # Its recipes for performance set grad_reduce_in_fp32 to False.
    gradient_bytes={
        precision: precision.activation_bytes
        for precision in Precision
        if precision.activation_bytes < FP32_BYTES
    },
    footprint=footprint_of("megatron-bridge"),
    compiled_as="megatron-bridge-graphs",
    unfused_precisions=(),
    versions=("0.6",),
    version="0.6",
)

MEGATRON_DEEPSPEED: Final = replace(
    MEGATRON_CORE,
    name="megatron-deepspeed",
    pace=pace_of("megatron-deepspeed"),
    description="Megatron-DeepSpeed: Megatron's tensor parallelism under DeepSpeed's engine",
    adapters=False,
    compiled_as=None,
    schedules=(ScheduleName.ONE_FORWARD_ONE_BACKWARD,),
    recompute=_WHOLE_LAYERS,
    pipeline_zero_stages=_WITHOUT_SHARDED_GRADIENTS,
    uneven_by_default=True,
    default_zero_stage=ZeroStage.NONE,
    overlaps_gradient_reduction=False,
    overlaps_parameter_gather=False,
    # BF16_Optimizer accumulates in FP32 beside the gradients of the passes.
    keeps_low_gradients=True,
    updates_host_beside_copies=False,
    footprint=footprint_of("megatron-deepspeed"),
    limits=framework_limits.MEGATRON_DEEPSPEED,
    refused_precisions=_BEYOND_SCALED_FP8,
    kept=FUSED,
    versions=(),
    version="",
)

PYTORCH: Final = Framework(
    name="pytorch",
    pace=pace_of("pytorch"),
    description="PyTorch's own FSDP2, DTensor tensor parallelism and pipelining",
    # LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble and DualPipeV.
    schedules=tuple(ScheduleName),
    keeps_graph_for_weights=True,
    zero_stages=(ZeroStage.NONE, ZeroStage.GRADIENTS, ZeroStage.PARAMETERS),
    recompute=_ALL_RECOMPUTE,
    recompute_grain=Grain.LAYER,
    gradient_bytes={},
    # The module's own dtype; gradients and moments follow it.
    chosen_formats=(ChosenFormat.MASTER_WEIGHT,),
    # NF4 weights of torchao and bitsandbytes under FSDP.
    quantized_bases=True,
    keeps_master_weights=False,
    vocabulary_multiple=1,
    default_zero_stage=ZeroStage.PARAMETERS,
    uneven_by_default=True,
    empty_ends=True,
    hides_tensor_parallel_backward=False,
    saves_gathered_inputs=True,
    keeps_whole_embedding_gradients=True,
    # A training loop that reads the logits keeps them, in two bytes, until backward is over.
    kept=replace(EAGER, logit_bytes=EAGER.logit_bytes + 2),
    # torch.optim loops over parameters on the host unless it is told fused=True.
    host_update_pace=_TORCH_UPDATE_PACE,
    footprint=footprint_of("pytorch"),
    compiled_as="torch-compile",
    limits=framework_limits.PYTORCH,
    versions=("2.13",),
    version="2.13",
)

TORCHTITAN: Final = replace(
    PYTORCH,
    name="torchtitan",
    pace=pace_of("torchtitan"),
    description="torchtitan: FSDP2, DTensor and pipelining as configured recipes",
    # optimizer.implementation is "fused".
    host_update_pace=1.0,
    quantized_bases=False,
    recompute=_WHOLE_LAYERS,
    recompute_grain=Grain.JOB,
    # It drops the logits before backward.
    kept=EAGER,
    refused_precisions=(Precision.FP16,),
    default_sequence_parallel=True,
    limits=framework_limits.TORCHTITAN,
    versions=("0.1", "0.2", "0.3"),
    version="0.3",
)

DEEPSPEED: Final = replace(
    PYTORCH,
    name="deepspeed",
    pace=pace_of("deepspeed"),
    description="DeepSpeed: ZeRO, its pipeline engine, AutoTP",
    schedules=(ScheduleName.ONE_FORWARD_ONE_BACKWARD,),
    zero_stages=tuple(ZeroStage),
    recompute=_WHOLE_LAYERS,
    recompute_grain=Grain.JOB,
    keeps_master_weights=True,
    gradient_bytes={Precision.FP16: 2, Precision.BF16: 2},
    # data_types.grad_accum_dtype, bf16_master_weights_and_grads, bf16_optimizer_states.
    chosen_formats=tuple(ChosenFormat),
    # ZeRO-3 leaves the 4-bit weights of bitsandbytes whole (InternLM/xtuner#88).
    shards_quantized=False,
    # zero_hpz_partition_size: the secondary partition, which forward passes fill.
    copies_shards=True,
    pipeline_zero_stages=_WITHOUT_SHARDED_GRADIENTS,
    default_zero_stage=ZeroStage.NONE,
    footprint=footprint_of("deepspeed"),
    # Transformers hands the logits out in FP32, whose two gradients come on top.
    kept=replace(EAGER, logit_bytes=EAGER.logit_bytes + 4),
    # AutoTP splits the products of the layers alone.
    splits_vocabulary=False,
    keeps_whole_embedding_gradients=False,
    host_update_pace=1.0,
    limits=framework_limits.DEEPSPEED,
    refused_precisions=(Precision.FP8, *_BEYOND_SCALED_FP8),
    versions=("0.16", "0.17", "0.18", "0.19"),
    version="0.19",
)

NANOTRON: Final = replace(
    MEGATRON_CORE,
    name="nanotron",
    pace=pace_of("nanotron"),
    description="nanotron: tensor, pipeline and data parallelism with ZeRO-1",
    unfused_precisions=(),
    schedules=(ScheduleName.GPIPE, ScheduleName.ONE_FORWARD_ONE_BACKWARD),
    zero_stages=_WITHOUT_SHARDED_GRADIENTS,
    recompute=_WHOLE_LAYERS,
    gradient_bytes={},
    # accumulate_grad_in_fp32 alone.
    chosen_formats=(ChosenFormat.GRADIENT,),
    adapters=False,
    vocabulary_multiple=1,
    context_parallel=False,
    uneven_by_default=True,
    default_zero_stage=ZeroStage.NONE,
    weighs_layers=True,
    default_sequence_parallel=True,
    keeps_low_gradients=True,
    # Its loss holds the logits in FP32 and, as reserved, in low precision beside them less their maximum,
    # which its exponentials take the place of and which it keeps.
    kept=Keeping(activation_outputs=True, logit_bytes=4 + 2),
    keeps_narrow_inputs=False,
    footprint=footprint_of("nanotron"),
    scatters_transfers=False,
    overlaps_gradient_reduction=False,
    # Without ZeRO its gradients go through DistributedDataParallel.
    overlaps_whole_reduction=True,
    overlaps_parameter_gather=False,
    compiled_as=None,
    limits=framework_limits.NANOTRON,
    refused_precisions=(Precision.FP8, *_BEYOND_SCALED_FP8),
    versions=("0.4",),
    version="0.4",
)

COMPOSER: Final = replace(
    PYTORCH,
    name="composer",
    pace=pace_of("composer"),
    description="Composer (llm-foundry): FSDP alone",
    quantized_bases=False,
    schedules=(ScheduleName.ONE_FORWARD_ONE_BACKWARD,),
    recompute=_WHOLE_LAYERS,
    recompute_grain=Grain.JOB,
    tensor_parallel=False,
    pipeline_parallel=False,
    context_parallel=False,
    # llm-foundry's default loss (loss_fn: fused_crossentropy) is flash-attn's kernel over 16-bit logits.
    kept=replace(EAGER, logit_bytes=0, kept_logit_bytes=2),
    limits=framework_limits.COMPOSER,
    refused_precisions=_BEYOND_SCALED_FP8,
    versions=("0.22",),
    version="0.22",
)

MAXTEXT: Final = replace(
    PYTORCH,
    name="maxtext",
    pace=pace_of("maxtext"),
    description="MaxText: JAX sharding over fsdp, tensor, context and pipeline axes",
    # The pipeline is a loop that JAX differentiates: every forward pass, then every backward pass. Its
    # repeats (num_pipeline_repeats) are such loops over several chunks, which no known schedule plays.
    schedules=(ScheduleName.GPIPE,),
    zero_stages=(ZeroStage.NONE, ZeroStage.OPTIMIZER, ZeroStage.PARAMETERS),
    recompute=_WHOLE_LAYERS,
    recompute_grain=Grain.JOB,
    # weight_dtype, grad_dtype, mu_dtype.
    chosen_formats=tuple(ChosenFormat),
    quantized_bases=False,
    hides_tensor_parallel_backward=True,
    # XLA fuses passes and gathers again.
    saves_gathered_inputs=False,
    keeps_whole_embedding_gradients=False,
    kept=FUSED,
    compiled_as=None,
    always_compiled=True,
    limits=framework_limits.MAXTEXT,
    versions=("0.2",),
    version="0.2",
    uneven_by_default=False,
    empty_ends=False,
)

ANY: Final = replace(
    MEGATRON_CORE,
    name="any",
    pace=pace_of("any"),
    description="No framework's limits: the whole space, with Megatron-core's overlaps",
    quantized_bases=True,
    unfused_precisions=(),
    kept=FUSED,
    schedules=tuple(ScheduleName),
    recompute_grain=Grain.LAYER,
    vocabulary_multiple=1,
    default_zero_stage=ZeroStage.NONE,
    uneven_by_default=True,
    limits=framework_limits.NO_LIMITS,
    versions=(),
    version="",
)

FRAMEWORKS: Final[Mapping[str, Framework]] = {
    framework.name: framework
    for framework in (
        MEGATRON_CORE,
        MEGATRON_BRIDGE,
        MEGATRON_DEEPSPEED,
        PYTORCH,
        TORCHTITAN,
        DEEPSPEED,
        NANOTRON,
        COMPOSER,
        MAXTEXT,
        ANY,
    )
}


FAMILIAR: Final[Mapping[str, tuple[str, ...]]] = {
    "fsdp": ("pytorch", "torchtitan"),
    "fsdp2": ("pytorch", "torchtitan"),
    "torch": ("pytorch", "torchtitan"),
    "ddp": ("pytorch",),
    "dtensor": ("pytorch", "torchtitan"),
    "megatron": ("megatron-core", "megatron-bridge", "megatron-deepspeed"),
    "zero": ("deepspeed", "megatron-deepspeed"),
    "accelerate": ("pytorch", "deepspeed"),
    "huggingface": ("pytorch", "deepspeed"),
    "transformers": ("pytorch", "deepspeed"),
    "llm-foundry": ("composer",),
    "mosaicml": ("composer",),
    "jax": ("maxtext",),
}
"""What people call a framework, or a part of one, and which of those known here they may mean."""


def framework_by_name(name: str, *, version: str | None = None, pointer: str = "/job/framework") -> Framework:
    """Return a framework's traits, in a release of it or in the newest that is known.

    Raises UnknownName with the nearest names, or with the known releases.
    """
    framework = FRAMEWORKS.get(name)
    if framework is None:
        nearest = FAMILIAR.get(name.lower()) or nearest_names(name, FRAMEWORKS)
        raise UnknownName(f"unknown framework {name!r}", pointer=pointer, nearest_legal=nearest)
    return in_release(framework, version, pointer=f"{pointer}_version" if pointer else "")
