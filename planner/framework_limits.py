"""What each training framework allows, in its newest known release.

Sources: the checks of the releases themselves, read in their packages: Megatron-core 0.19.2, PyTorch 2.13
(torch.distributed.pipelining), torchtitan 0.3.0, DeepSpeed 0.19.8, nanotron 0.4, llm-foundry 0.22.0,
MaxText 0.2.5; for Megatron-DeepSpeed its arguments and its MoE example. `planner.releases` says how
older ones differ.
"""

from dataclasses import replace
from typing import Final

from planner.limits import STATES, ExpertLimits, ExpertRanks, ExpertTensor, LayerSplit, Limits
from planner.offload_limits import DEEPSPEED_OFFLOAD, FSDP2_OFFLOAD, MEGATRON_OFFLOAD, NO_OFFLOAD, HostShare
from planner.strategy import DEFAULT_RANK_ORDER, PIPELINE_INSIDE, ContextParallelScheme, ZeroStage
from planner.wire_choices import (
    ANY_GATHERS,
    ANY_REDUCTIONS,
    DEEPSPEED_GATHERS,
    DEEPSPEED_REDUCTIONS,
    MEGATRON_GATHERS,
    MEGATRON_REDUCTIONS,
    TORCH_GATHERS,
    TORCH_REDUCTIONS,
)

WITHOUT_SHARDED_PARAMETERS: Final = (ZeroStage.NONE, ZeroStage.OPTIMIZER, ZeroStage.GRADIENTS)

MEGATRON_MODULES: Final = {
    "core_attn": "core_attention",
    "mlp": "mlp",
    "layernorm": "norm",
    "moe": "moe",
    "moe_act": "moe_activation",
    "shared_experts": "shared_experts",
    "mla_up_proj": "latent_projection",
}
"""--recompute-modules; gdn_norm_out alone has no counterpart."""

MEGATRON: Final = Limits(
    # --use-tp-pp-dp-mapping.
    rank_orders=(DEFAULT_RANK_ORDER, PIPELINE_INSIDE),
    # --cp-comm-type has all of them. Transformer Engine passes no windows around a ring, asks for key
    # heads that an all-to-all divides, and splits fused attention alone; the parser asks for a sequence that
    # 2 x context_parallel divides.
    windowed_schemes=(ContextParallelScheme.ALL_TO_ALL, ContextParallelScheme.ALL_GATHER),
    copies_exchanged_heads=False,
    splits_unfused_attention=False,
    always_takes_halves=True,
    # --num-distributed-optimizer-instances; beside sharded parameters --outer-dp-sharding-strategy optim
    # has all instances share the optimizer's states.
    grouped_states=(("optimizer",), ("gradients", "optimizer"), STATES, ("parameters", "gradients")),
    gathers=MEGATRON_GATHERS,
    reductions=MEGATRON_REDUCTIONS,
    recompute_modules=MEGATRON_MODULES,
    # MoELayer.forward raises for tensor parallelism without sequence parallelism while training.
    experts=ExpertLimits(need_sequence_parallel=True),
    offload=MEGATRON_OFFLOAD,
)

MEGATRON_DEEPSPEED: Final = Limits(
    copies_heads=False,
    # GPTModelPipe hands its layers to PipelineModule with partition_method="type:transformer".
    layer_split=LayerSplit.OWN,
    # DeepSpeed-Ulysses; parallel_state asserts that tensor and pipeline parallel are 1 beside it.
    context_parallel_schemes=(ContextParallelScheme.ALL_TO_ALL,),
    context_parallel_alone=True,
    grouped_states=(),
    gathers=DEEPSPEED_GATHERS,
    reductions=DEEPSPEED_REDUCTIONS,
    keeps_gathered="stage3_max_reuse_distance and stage3_max_live_parameters beyond all parameters",
    recompute_modules={},
    # ds_pretrain_gpt_1.3B_MoE128.sh: "MoE is not compatible with pipeline parallel".
    experts=ExpertLimits(
        ranks=ExpertRanks.DATA,
        tensor=ExpertTensor.ONE_OR_SAME,
        with_pipeline=False,
        zero_stages=WITHOUT_SHARDED_PARAMETERS,
    ),
    offload=DEEPSPEED_OFFLOAD,
)

PYTORCH: Final = Limits(
    # DTensor shards the heads of a view: each rank needs whole ones.
    copies_heads=False,
    # set_rotate_method: "allgather" unless told "alltoall".
    context_parallel_schemes=(ContextParallelScheme.ALL_GATHER, ContextParallelScheme.RING),
    # fully_shard takes a mesh of (replicate, shard), for all states.
    grouped_states=(STATES,),
    # It is called on each module, with a mesh and a policy of its own.
    shards_modules_apart=True,
    gathers=TORCH_GATHERS,
    reductions=TORCH_REDUCTIONS,
    keeps_gathered="reshard_after_forward=False",
    # Schedule1F1B and ScheduleInterleaved1F1B raise for other numbers of micro-batches.
    spare_stages=0,
    interleaved_fill_rounds=True,
    # stage_backward_weight asks autograd for each product's weights in turn, and a checkpointed layer runs
    # again each time: nine times a decoder layer's forward pass, measured with 2.13 on CPU.
    repeats_recompute_for_weights=True,
    experts=ExpertLimits(spread=False, own_layers=False, tensor=ExpertTensor.ONE_OR_SAME),
    offload=FSDP2_OFFLOAD,
)

TORCHTITAN: Final = replace(
    PYTORCH,
    # The trainer raises for a sequence that is no multiple of tensor x 2 x context parallel.
    shards_sequence_halves=True,
    # pipeline_llm raises for a looped schedule with one stage per rank.
    zero_bubble_chunks=2,
    shards_modules_apart=False,
    # --training.mixed_precision_reduce takes float32 alone.
    reductions=(),
    keeps_gathered="--parallelism.fsdp_reshard_after_forward never",
    # ParallelDims shards over dp_shard x cp.
    shards_over_context=True,
    # No option for torch's rotate method.
    context_parallel_schemes=(ContextParallelScheme.ALL_GATHER,),
    recompute_modules={},
    # ParallelDims makes "efsdp" of dp_shard x cp x tp / ep and does not check that it comes out even.
    experts=ExpertLimits(ranks=ExpertRanks.SHARDS, tensor=ExpertTensor.SAME_UNLESS_SPREAD),
    # --training.enable_cpu_offload.
    offload=replace(FSDP2_OFFLOAD, activations=HostShare.NONE),
)

DEEPSPEED: Final = Limits(
    copies_heads=False,
    # DeepSpeed-Ulysses.
    context_parallel_schemes=(ContextParallelScheme.ALL_TO_ALL,),
    context_parallel_alone=True,
    # zero_hpz_partition_size; MiCS is gone.
    grouped_states=(("parameters",),),
    gathers=DEEPSPEED_GATHERS,
    reductions=DEEPSPEED_REDUCTIONS,
    # A parameter is not released that the trace of a step needs again within so many others.
    keeps_gathered="stage3_max_reuse_distance and stage3_max_live_parameters beyond all parameters",
    recompute_modules={},
    # AutoEP, folded with AutoTP below stage 3 alone.
    experts=ExpertLimits(
        own_layers=False,
        tensor=ExpertTensor.ONE_OR_SAME,
        tensor_zero_stages=WITHOUT_SHARDED_PARAMETERS,
    ),
    offload=DEEPSPEED_OFFLOAD,
)

NANOTRON: Final = Limits(
    copies_heads=False,
    # build_model balances the blocks' compute costs over stages.
    layer_split=LayerSplit.OWN,
    context_parallel_schemes=(),
    grouped_states=(),
    # OneForwardOneBackwardPipelineEngine asserts at least stages - 1 micro-batches.
    spare_stages=1,
    recompute_modules={},
    experts=ExpertLimits(exist=False, spread=False, tensor=ExpertTensor.ONE),
    offload=NO_OFFLOAD,
)

COMPOSER: Final = Limits(
    context_parallel_schemes=(),
    # HYBRID_SHARD.
    grouped_states=(STATES,),
    recompute_modules={},
    # moe_world_size: a mesh over FSDP's own ranks.
    experts=ExpertLimits(ranks=ExpertRanks.DATA, tensor=ExpertTensor.ONE),
    # Composer raises "FSDP CPU Offload not supported yet".
    offload=NO_OFFLOAD,
)

MAXTEXT: Final = Limits(
    # The arguments of a jitted step are sharded evenly or refused.
    copies_heads=False,
    cuts_vocabulary_unevenly=False,
    # num_pipeline_repeats: the stages times the layers of each must be the decoder's layers.
    layer_split=LayerSplit.EVEN,
    rank_orders=(),
    # context_parallel_strategy: all_gather, ring, ulysses, usp.
    context_parallel_schemes=(
        ContextParallelScheme.ALL_GATHER,
        ContextParallelScheme.RING,
        ContextParallelScheme.ALL_TO_ALL,
        ContextParallelScheme.MIXED,
    ),
    copies_exchanged_heads=False,
    splits_unfused_attention=False,
    # The mesh axes "data" and "fsdp"; what "fsdp" shards "context" does too.
    grouped_states=(STATES,),
    shards_over_context=True,
    micro_batches_fill_stages=True,
    recompute_modules={},
    # Experts over their own axis, which holds other samples; each expert's width over "tensor".
    experts=ExpertLimits(ranks=ExpertRanks.DATA, tensor=ExpertTensor.SAME),
    offload=replace(
        NO_OFFLOAD,
        # They rest on the host and are updated on the device, all at once.
        unpriced="optimizer_memory_host_offload, parameter_memory_host_offload and remat_policy",
    ),
)

NO_LIMITS: Final = Limits(
    rank_orders=(),
    shards_modules_apart=True,
    gathers=ANY_GATHERS,
    reductions=ANY_REDUCTIONS,
    keeps_gathered="reshard_after_forward",
)
