"""Maps of features: what convolutions read and write, one for each image."""

from dataclasses import dataclass, replace
from enum import StrEnum

from planner.units import Bytes
from planner.workload.layers import Cut
from planner.workload.operators import MemoryPass, Module, Saved, SavedTensor
from planner.workload.streams import ImageStream


class Activation(StrEnum):
    """What follows a norm or a sum: nothing, what keeps its output (ReLU), or what keeps its input (SiLU)."""

    NONE = "none"
    RELU = "relu"
    SILU = "silu"


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureMap:
    """``channels`` at ``side`` x ``side`` positions of each of ``images``, in elements of so many bytes.

    ``made_by`` is the module that made it (None: it is the layer's input), ``is_saved`` whether something
    has saved it already.
    """

    images: int
    channels: int
    side: int
    element_bytes: int
    made_by: Module | None = None
    is_saved: bool = False

    @property
    def positions(self) -> int:
        """Positions of all images."""
        return self.images * self.side**2

    @property
    def elements(self) -> int:
        """Numbers of all images."""
        return self.positions * self.channels

    @property
    def size_bytes(self) -> Bytes:
        """Bytes of all images."""
        return float(self.element_bytes * self.elements)

    @property
    def vector_bytes(self) -> Bytes:
        """Bytes of one number for each image and channel."""
        return float(self.element_bytes * self.images * self.channels)

    def written(self, *, made_by: Module, channels: int | None = None, stride: int = 1) -> "FeatureMap":
        """Return a map that is made of this one; a stride leaves every so manieth position, the first too."""
        side = strided(self.side, stride)
        channels = channels or self.channels
        return replace(self, channels=channels, side=side, made_by=made_by, is_saved=False)

    def saved(self, name: str) -> Saved:
        """Return the map as an operator saves it, unless something before has."""
        if self.is_saved:
            return ()
        return (SavedTensor(name=name, size_bytes=self.size_bytes, made_by=self.made_by),)


def map_side(stream: ImageStream) -> int:
    """Return the side of a map of which one position stands for a patch of the image."""
    return strided(stream.image_size, stream.patch_size)


def map_of(stream: ImageStream, channels: int, cut: Cut) -> FeatureMap:
    """Return the maps that a layer of this stream reads; no parallel degree splits an image."""
    return FeatureMap(
        images=cut.micro_batch_size * stream.images,
        channels=channels,
        side=map_side(stream),
        element_bytes=cut.element_bytes,
    )


def strided(side: int, stride: int) -> int:
    """Return the positions that a stride leaves of a side, with as much padding as that needs."""
    return -(-side // stride)


def activation_pass(
    name: str, activation: Activation, source: FeatureMap, *, module: Module
) -> tuple[MemoryPass, ...]:
    """Return an activation: it reads and writes the map, backward reads a gradient and what was saved.

    ReLU needs its output alone, which the next operator saves as its input.
    """
    if activation is Activation.NONE:
        return ()
    return (
        MemoryPass(
            name=name,
            module=module,
            kind="gelu",
            forward_bytes=2 * source.size_bytes,
            backward_bytes=3 * source.size_bytes,
            saved=source.saved(f"{name}_input") if activation is Activation.SILU else (),
        ),
    )
