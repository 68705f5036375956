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
    queued_layers: float = 0.0
    """Layers whose forward passes the host may have launched before the device runs them: what they free when
    they are launched, and collectives have yet to read, cannot be used again until then."""
    further_groups: float = 0
    """Process groups with communicators of their own beside those of the mesh's axes."""
    fragmentation_fraction: float = 0.03
    """Reserved over allocated, less one, of tensors that come and go in a steady training loop."""
    pipelined_fragmentation_fraction: float = 0.0
    """The same on top of it in a pipeline: micro-batches free blocks in another order than they took them."""
    host_factor: float = 1.0
    """What states take on the host over their own bytes: buffers of their copies, pinned in powers of two."""
    state_error: float = 0.01
    """Relative error of parameters, gradients and optimizer states: padding, and copies unknown here."""
    transient_error: float = 0.04
    """Relative error of everything else: what passes keep, and how the program orders and frees it.

    One standard deviation, as of the runs of truncated models on B200 for Megatron-core.
    """

    def fragmentation(self, num_stages: int) -> float:
        """Return reserved over allocated, less one, in a pipeline of so many stages."""
        more = self.pipelined_fragmentation_fraction if num_stages > 1 else 0.0
        return self.fragmentation_fraction + more


PLAIN: Final = Footprint()
"""No copies of gradients, no buffers."""
