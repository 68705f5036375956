"""Pools of images: over windows of a map, and over the whole of it."""

from dataclasses import dataclass
from typing import ClassVar, Final

from planner.units import Bytes, Flops
from planner.workload.convolution import MAX_KERNEL
from planner.workload.feature_map import FeatureMap, map_of
from planner.workload.layers import Cut, PlainLayer
from planner.workload.operators import MemoryPass, Module, Operator, SavedTensor
from planner.workload.sizes import require_flag, require_size
from planner.workload.streams import ImageStream, require_images

POOL: Final = "pool"
"""The kind of the layer that makes one vector of a map."""
INDEX_BYTES: Final = 8
"""PyTorch keeps where each maximum stood as a 64-bit index."""
MODULE: Final = Module.CONVOLUTION


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowPool:
    """The largest number of each window of every channel, or with ``average`` their mean."""

    channels: int
    kernel: int
    stride: int
    average: bool = False

    def __post_init__(self) -> None:
        require_size("channels", self.channels)
        for name in ("kernel", "stride"):
            require_size(name, getattr(self, name), largest=MAX_KERNEL)
        require_flag("average", self.average)

    @property
    def inputs(self) -> int:
        """Channels that it reads."""
        return self.channels

    @property
    def outputs(self) -> int:
        """Channels that it writes."""
        return self.channels

    @property
    def parameters(self) -> int:
        """None."""
        return 0

    @property
    def buffers(self) -> int:
        """None."""
        return 0

    def forward_flops(self, side: int) -> Flops:  # noqa: ARG002 - a Part
        """Return none: comparisons and sums are not counted."""
        return 0.0

    def output(self, source: FeatureMap) -> FeatureMap:
        """Return the smaller map."""
        return source.written(made_by=MODULE, stride=self.stride)

    def operators(self, name: str, source: FeatureMap) -> tuple[Operator, ...]:
        """Return the one pass; maxima save the map and where they stood."""
        pooled = self.output(source)
        indices = 0 if self.average else INDEX_BYTES * pooled.elements
        place = SavedTensor(name=f"{name}_indices", size_bytes=indices, made_by=MODULE)
        moved = source.size_bytes + pooled.size_bytes + indices
        return (
            MemoryPass(
                name=name,
                module=MODULE,
                kind=POOL,
                forward_bytes=moved,
                backward_bytes=moved,
                saved=() if self.average else (*source.saved(f"{name}_input"), place),
            ),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolLayer(PlainLayer):
    """The mean of every channel over the whole map: one vector per image."""

    kind: ClassVar[str] = POOL

    channels: int
    stream: ImageStream

    def __post_init__(self) -> None:
        require_size("channels", self.channels)
        require_images("stream", self.stream)

    @property
    def inputs(self) -> int:
        """Channels that it reads."""
        return self.channels

    @property
    def outputs(self) -> int:
        """Channels that it writes."""
        return self.channels

    @property
    def parameters(self) -> int:
        """None."""
        return 0

    def local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return none."""
        return 0

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:  # noqa: ARG002 - the Layer protocol
        """Return none: sums are not counted."""
        return 0.0

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of one vector per image."""
        return self._map(cut).vector_bytes

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the one pass; none without images."""
        source = self._map(cut)
        if not source.images:
            return ()
        moved = source.size_bytes + source.vector_bytes
        return (MemoryPass(name=POOL, module=MODULE, kind=POOL, forward_bytes=moved, backward_bytes=moved),)

    def _map(self, cut: Cut) -> FeatureMap:
        return map_of(self.stream, self.channels, cut)
