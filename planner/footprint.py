"""What a framework's process holds on a device besides parameters, states and saved tensors."""

from dataclasses import dataclass
from typing import Final

from planner.units import GIBIBYTE, Bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """Copies of gradients, flat buffers and allocator overhead; the defaults are those of Megatron-core."""

    upcast_gradient_bytes: float = 0
    """Bytes per parameter of a shard's gradients in FP32, kept beside those that are held in fewer bytes.

    DeepSpeed's page on memory requirements counts it: 16 bytes per parameter of a shard beside 2 + 2 whole.
    """
    shard_copy_bytes: float = 0
    """Bytes per parameter of a shard that a sharded optimizer keeps beside its states."""
    replica_bucket_bytes: float = 0
    """Bytes per parameter of the flat buckets that average gradients over replicas without sharding.

    DistributedDataParallel keeps them as wide as the parameter.
    """
    buffer_bytes: Bytes = 0.0
    """Flat buffers of a fixed size that are allocated once and kept."""
    context_bytes: Bytes = 0.6 * GIBIBYTE
    """A CUDA context with the libraries' workspaces, as drivers report it on data-centre devices."""
    pipelined_kept_fraction: float = 0.0
    """What the passes of a pipeline keep beyond their tensors, as a share: blocks of several micro-batches
    are freed in another order than they were taken in."""
    pipelined_gathered_share: float = 1.0
    """Share of the gathered inputs that the passes of a pipeline keep, on average over releases."""
    further_groups: float = 0
    """Process groups with communicators of their own beside those of the mesh's axes."""
    fragmentation_fraction: float = 0.03
    """Reserved over allocated, less one, of tensors that come and go in a steady training loop."""
    unsure_gathered_inputs: float = 0.0
    """Share of the gathered inputs that some releases or settings gather again instead of keeping them."""
    state_error: float = 0.01
    """Relative error of parameters, gradients and optimizer states: padding, and copies unknown here."""
    transient_error: float = 0.04
    """Relative error of everything else: what passes keep, and how the program orders and frees it.

    One standard deviation, as of the runs of truncated models on B200 for Megatron-core.
    """


PLAIN: Final = Footprint()
"""No copies of gradients, no buffers."""
