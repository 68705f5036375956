"""A convolution of images, its batch norm and its activation.

Letters: b images, C channels in, K channels out, k the kernel's side, g groups, P positions out.
A dense convolution is the product of P b windows of k^2 C / g numbers with as many weights for each of
K / g channels, g times. Kernels form the windows as they read (Chetlur et al., "cuDNN: Efficient Primitives
for Deep Learning", 2014), so that its input is saved and moved as it is. A depth-wise one (g = C) has so
few multiplications per byte that memory bounds it.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from planner.units import Flops
from planner.workload.feature_map import Activation, FeatureMap, activation_pass, strided
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator
from planner.workload.sizes import require_divisible, require_flag, require_size, require_word

MODULE: Final = Module.CONVOLUTION
MAX_KERNEL: Final = 1000
"""Above any side of a kernel, and any stride, that can be meant."""


class Part(Protocol):
    """One part of a convolutional layer. Steps compare equal when they cost the same."""

    @property
    def inputs(self) -> int:
        """Channels that it reads."""
        ...

    @property
    def outputs(self) -> int:
        """Channels that it writes."""
        ...

    @property
    def stride(self) -> int:
        """Positions of its input to one of its output, along a side."""
        ...

    @property
    def parameters(self) -> int:
        """Its parameters."""
        ...

    @property
    def buffers(self) -> int:
        """Numbers that it keeps and nothing trains."""
        ...

    def forward_flops(self, side: int) -> Flops:
        """Return useful forward FLOP of one image whose map has such a side."""
        ...

    def output(self, source: FeatureMap) -> FeatureMap:
        """Return what it writes."""
        ...

    def operators(self, name: str, source: FeatureMap) -> tuple[Operator, ...]:
        """Return its operators, whose names begin with ``name``, in forward order."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Convolution:
    """A convolution with a square kernel, padded so that a stride of one keeps the map's side.

    ``batch_norm`` tells whether one follows it. With as many ``groups`` as channels it is depth-wise.
    """

    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    bias: bool = False
    batch_norm: bool = True
    activation: Activation = Activation.NONE

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "groups"):
            require_size(name, getattr(self, name))
        for name in ("kernel", "stride"):
            require_size(name, getattr(self, name), largest=MAX_KERNEL)
        for name in ("bias", "batch_norm"):
            require_flag(name, getattr(self, name))
        require_word("activation", self.activation, Activation)
        for name in ("inputs", "outputs"):
            require_divisible(name, getattr(self, name), by_name="groups", by=self.groups)

    @property
    def parameters(self) -> int:
        """Weights, biases, scale and shift of the norm."""
        return self.outputs * (self._window + self.bias + 2 * self.batch_norm)

    @property
    def buffers(self) -> int:
        """Running mean and variance of the norm, and how many batches they saw."""
        return (2 * self.outputs + 1) * self.batch_norm

    @property
    def is_depthwise(self) -> bool:
        """Whether every channel is convolved alone."""
        return self.groups == self.inputs > 1

    def forward_flops(self, side: int) -> Flops:
        """Return 2 per weight and position out."""
        return 2.0 * strided(side, self.stride) ** 2 * self.outputs * self._window

    def output(self, source: FeatureMap) -> FeatureMap:
        """Return the map after norm and activation."""
        made_by = Module.NORM if self.batch_norm and self.activation is Activation.NONE else MODULE
        return source.written(made_by=made_by, channels=self.outputs, stride=self.stride)

    def operators(self, name: str, source: FeatureMap) -> tuple[Operator, ...]:
        """Return the convolution, the norm and the activation."""
        convolved = source.written(made_by=MODULE, channels=self.outputs, stride=self.stride)
        ready = convolved.written(made_by=Module.NORM) if self.batch_norm else convolved
        convolve = self._depthwise_pass if self.is_depthwise else self._product
        return (
            convolve(name, source, convolved),
            *(self._norm_pass(f"{name}_norm", convolved)),
            *activation_pass(f"{name}_activation", self.activation, ready, module=MODULE),
        )

    def _product(self, name: str, source: FeatureMap, convolved: FeatureMap) -> MatrixProduct:
        return MatrixProduct(
            name=name,
            module=MODULE,
            rows=convolved.positions,
            columns=self.outputs // self.groups,
            inner=self._window,
            count=self.groups,
            input_elements=source.elements,
            saved=source.saved(f"{name}_input"),
        )

    def _depthwise_pass(self, name: str, source: FeatureMap, convolved: FeatureMap) -> MemoryPass:
        """Forward reads the input and writes the output; either gradient reads dy, and x or writes dx."""
        return MemoryPass(
            name=name,
            module=MODULE,
            kind="depthwise",
            forward_bytes=source.size_bytes + convolved.size_bytes,
            backward_bytes=2 * (source.size_bytes + convolved.size_bytes),
            forward_flops=2.0 * convolved.elements * self._window,
            saved=source.saved(f"{name}_input"),
        )

    def _norm_pass(self, name: str, convolved: FeatureMap) -> tuple[MemoryPass, ...]:
        """Forward reads x for its statistics, and again to write y.

        Backward reads dy and x to sum over positions, and both again to write dx. The statistics that it
        saves (two numbers a channel) are left out.
        """
        if not self.batch_norm:
            return ()
        return (
            MemoryPass(
                name=name,
                module=Module.NORM,
                kind="batch_norm",
                forward_bytes=3 * convolved.size_bytes,
                backward_bytes=5 * convolved.size_bytes,
                saved=convolved.saved(f"{name}_input"),
            ),
        )

    @property
    def _window(self) -> int:
        """Weights of one output channel."""
        return self.inputs // self.groups * self.kernel**2
