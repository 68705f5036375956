"""What each training framework may be told to send between replicas, in its newest known release.

Sources: Megatron-core 0.19.2 (training/arguments.py, distributed_data_parallel_config.py), PyTorch 2.13
(torch.distributed.fsdp.MixedPrecisionPolicy) with torchao's Float8LinearConfig, DeepSpeed 0.19.8
(runtime/zero/partition_parameters.py, runtime/comm/coalesced_collectives.py).
"""

from dataclasses import replace
from typing import Final

from planner.job import Precision
from planner.strategy import ZeroStage
from planner.wire import WireChoice, WireFormat

_EVERY: Final = tuple(ZeroStage)
_SHARDED: Final = (ZeroStage.GRADIENTS, ZeroStage.PARAMETERS)
_WHOLE_GRADIENTS: Final = (ZeroStage.NONE, ZeroStage.OPTIMIZER)
_EIGHT_BITS: Final = (Precision.FP8, Precision.FP8_BLOCK, Precision.MXFP8)
_HALVED: Final = (Precision.BF16, *_EIGHT_BITS, Precision.NVFP4)
"""Precisions whose activations and gradients are BF16."""
_TWO_BYTES: Final = (Precision.FP16, *_HALVED)

MEGATRON_GATHERS: Final = (
    # "--fp8-param-gather only supported with distributed optimizer, torch fsdp2, megatron fsdp".
    WireChoice(
        format=WireFormat.FP8, words="--fp8-param-gather", zero_stages=_EVERY[1:], precisions=_EIGHT_BITS
    ),
)
MEGATRON_REDUCTIONS: Final = (
    # The buffer that is reduced is the one that gradients are added up in.
    WireChoice(
        format=WireFormat.BF16,
        words="--grad-reduce-in-bf16",
        zero_stages=_WHOLE_GRADIENTS,
        precisions=_HALVED,
        accumulates=True,
    ),
    # Megatron FSDP sends in a format of its own.
    WireChoice(
        format=WireFormat.BF16,
        words="--megatron-fsdp-grad-comm-dtype bf16",
        zero_stages=_SHARDED,
        precisions=_HALVED,
    ),
    WireChoice(
        format=WireFormat.FP32,
        words="--accumulate-allreduce-grads-in-fp32",
        zero_stages=_EVERY,
        accumulates=True,
    ),
)

TORCH_GATHERS: Final = (
    # torchao; one scale per tensor.
    WireChoice(
        format=WireFormat.FP8,
        words="enable_fsdp_float8_all_gather",
        zero_stages=_SHARDED,
        precisions=(Precision.FP8,),
    ),
)
TORCH_REDUCTIONS: Final = (
    WireChoice(
        format=WireFormat.BF16,
        words="MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)",
        zero_stages=_SHARDED,
        precisions=_HALVED,
    ),
    WireChoice(
        format=WireFormat.FP16,
        words="MixedPrecisionPolicy(reduce_dtype=torch.float16)",
        zero_stages=_SHARDED,
        precisions=(Precision.FP16,),
    ),
)

_QUANTIZED_WEIGHTS: Final = WireChoice(
    format=WireFormat.INT8,
    words="zero_quantized_weights",
    zero_stages=(ZeroStage.PARAMETERS,),
    precisions=(Precision.FP16, Precision.BF16),
    # CUDAQuantizer.quantize: "The CUDA kernel reads its input through a __half*".
    through_fp16=True,
)
_QUANTIZED_GRADIENTS: Final = WireChoice(
    format=WireFormat.INT4,
    # swizzle_quant reads FP16, too, and nothing converts BF16 for it but the format of communication.
    words='zero_quantized_gradients, communication_data_type "fp16"',
    zero_stages=(ZeroStage.PARAMETERS,),
    precisions=(Precision.FP16, Precision.BF16),
    exchanges=True,
    through_fp16=True,
)
DEEPSPEED_GATHERS: Final = (_QUANTIZED_WEIGHTS,)
DEEPSPEED_REDUCTIONS: Final = (
    _QUANTIZED_GRADIENTS,
    WireChoice(format=WireFormat.FP32, words='communication_data_type "fp32"', zero_stages=_EVERY),
)

ANY_GATHERS: Final = (
    *MEGATRON_GATHERS,
    replace(_QUANTIZED_WEIGHTS, words="int8 in blocks", precisions=_TWO_BYTES, through_fp16=False),
)
ANY_REDUCTIONS: Final = (
    *MEGATRON_REDUCTIONS,
    replace(_QUANTIZED_GRADIENTS, words="int4 in blocks", precisions=_TWO_BYTES, through_fp16=False),
)
"""What some framework sends, without the copies that it makes for its kernels."""
