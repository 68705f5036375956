"""Squeeze and excite (Hu et al., 2018): channels scaled by what a small network makes of their means.

Passes are counted as PyTorch runs them, one kernel per step.
"""

from dataclasses import dataclass

from planner.units import Bytes, Flops
from planner.workload.feature_map import FeatureMap
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator, SavedTensor
from planner.workload.sizes import require_size

MODULE = Module.CONVOLUTION


@dataclass(frozen=True, kw_only=True, slots=True)
class SqueezeExcite:
    """The mean of every channel, a map to ``width`` and back with biases, a sigmoid that scales channels."""

    channels: int
    width: int

    def __post_init__(self) -> None:
        require_size("channels", self.channels)
        require_size("width", self.width)

    @property
    def inputs(self) -> int:
        """Channels that it reads."""
        return self.channels

    @property
    def outputs(self) -> int:
        """Channels that it writes."""
        return self.channels

    @property
    def stride(self) -> int:
        """One: positions stay."""
        return 1

    @property
    def parameters(self) -> int:
        """Weights and biases of both maps."""
        return 2 * self.channels * self.width + self.channels + self.width

    @property
    def buffers(self) -> int:
        """None."""
        return 0

    def forward_flops(self, side: int) -> Flops:  # noqa: ARG002 - a Part
        """Return 2 per weight: the maps work on means."""
        return 4.0 * self.channels * self.width

    def output(self, source: FeatureMap) -> FeatureMap:
        """Return the scaled map."""
        return source.written(made_by=MODULE)

    def operators(self, name: str, source: FeatureMap) -> tuple[Operator, ...]:
        """Return means, both maps, and the product with the channels."""
        narrow = source.element_bytes * source.images * self.width
        wide = source.vector_bytes
        return (
            self._squeeze_pass(f"{name}_squeeze", source),
            _product(f"{name}_reduce", source.images, self.width, self.channels, size_bytes=wide),
            _vector_pass(f"{name}_activation", narrow),
            _product(f"{name}_expand", source.images, self.channels, self.width, size_bytes=narrow),
            _vector_pass(f"{name}_gate", wide),
            self._scale_pass(f"{name}_scale", source),
        )

    def _squeeze_pass(self, name: str, source: FeatureMap) -> MemoryPass:
        """Backward spreads the gradient of the means (1) and adds it to that of the product (3)."""
        return MemoryPass(
            name=name,
            module=MODULE,
            kind="pool",
            forward_bytes=source.size_bytes + source.vector_bytes,
            backward_bytes=4 * source.size_bytes,
        )

    def _scale_pass(self, name: str, source: FeatureMap) -> MemoryPass:
        """Backward scales the gradient (2), multiplies it with the map (3) and sums that by channel (1)."""
        return MemoryPass(
            name=name,
            module=MODULE,
            kind="add",
            forward_bytes=2 * source.size_bytes,
            backward_bytes=6 * source.size_bytes,
            saved=(
                *source.saved(f"{name}_input"),
                SavedTensor(name=f"{name}_factors", size_bytes=source.vector_bytes, made_by=MODULE),
            ),
        )


def _product(name: str, rows: int, columns: int, inner: int, *, size_bytes: Bytes) -> MatrixProduct:
    saved = (SavedTensor(name=f"{name}_input", size_bytes=size_bytes, made_by=MODULE),)
    return MatrixProduct(name=name, module=MODULE, rows=rows, columns=columns, inner=inner, saved=saved)


def _vector_pass(name: str, size_bytes: Bytes) -> MemoryPass:
    return MemoryPass(
        name=name,
        module=MODULE,
        kind="gelu",
        forward_bytes=2 * size_bytes,
        backward_bytes=3 * size_bytes,
        saved=(SavedTensor(name=f"{name}_input", size_bytes=size_bytes, made_by=MODULE),),
    )
