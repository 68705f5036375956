"""A layer of a convolutional network: convolutions one after the other, perhaps around a residual sum."""

from dataclasses import dataclass, replace
from itertools import pairwise

from planner.units import Bytes, Flops
from planner.workload.convolution import Convolution, Part
from planner.workload.feature_map import Activation, FeatureMap, activation_pass, map_of, map_side, strided
from planner.workload.layers import ENCODER, Cut, PlainLayer, Split
from planner.workload.operators import CollectivePass, MatrixProduct, MemoryPass, Module, Operator
from planner.workload.passes import dropout_mask
from planner.workload.sizes import UnfitValue, require_flag, require_probability, require_word
from planner.workload.streams import ImageStream, require_images
from planner.workload.tensor_parallel import AXIS


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvolutionalLayer(PlainLayer):
    """``parts`` over a map of which one position stands for a patch of the ``stream``'s images.

    With ``residual`` their output is added to the layer's input, which a ``shortcut`` brings to its shape;
    then follows an ``activation``. ``dropout`` is that of what is added. Nothing splits it over tensor
    parallel: channels of images are few. Refuses parts that do not fit one another with UnfitValue.
    """

    parts: tuple[Part, ...]
    stream: ImageStream
    residual: bool = False
    shortcut: Convolution | None = None
    activation: Activation = Activation.NONE
    dropout: float = 0.0
    role: str = ENCODER

    def __post_init__(self) -> None:
        if not self.parts:
            raise UnfitValue("parts", "must be at least one")
        require_images("stream", self.stream)
        require_flag("residual", self.residual)
        require_word("activation", self.activation, Activation)
        require_probability("dropout", self.dropout)
        for one, other in pairwise(self.parts):
            if one.outputs != other.inputs:
                message = f"must fit: one writes {one.outputs} channels, the next reads {other.inputs}"
                raise UnfitValue("parts", message)
        self._check_sum()

    @property
    def kind(self) -> str:
        """Its role: encoder, or embedding where it is the first layer."""
        return self.role

    @property
    def inputs(self) -> int:
        """Channels that it reads."""
        return self.parts[0].inputs

    @property
    def outputs(self) -> int:
        """Channels that it writes."""
        return self.parts[-1].outputs

    @property
    def stride(self) -> int:
        """Positions of its input to one of its output, along a side."""
        stride = 1
        for part in self.parts:
            stride *= part.stride
        return stride

    @property
    def parameters(self) -> int:
        """Parameters of all parts and of the shortcut."""
        return sum(part.parameters for part in self._all_parts)

    def local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return all of them."""
        return self.parameters

    @property
    def buffers(self) -> int:
        """Running statistics of the norms."""
        return sum(part.buffers for part in self._all_parts)

    @property
    def splits(self) -> tuple[Split, ...]:
        """One piece: it stays whole."""
        return (Split(name="convolution", pieces=1, axis=AXIS),)

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:  # noqa: ARG002 - the Layer protocol
        """Return those of the convolutions of one sample's images."""
        flops, side = 0.0, map_side(self.stream)
        if self.shortcut:
            flops += self.shortcut.forward_flops(side)
        for part in self.parts:
            flops += part.forward_flops(side)
            side = strided(side, part.stride)
        return self.stream.images * flops

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of the maps that it writes."""
        return self._output(map_of(self.stream, self.inputs, cut)).size_bytes

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order; none without images."""
        given = map_of(self.stream, self.inputs, cut)
        if not given.images:
            return ()
        operators: list[Operator] = []
        source = given
        for place, part in enumerate(self.parts):
            operators += part.operators(f"part_{place}", source)
            source = part.output(source)
        if self.stream.patch_size == 1:
            operators[0] = _of_pixels(operators[0])
        if self.shortcut:
            again = replace(given, is_saved=_saves_input(operators))
            operators += self.shortcut.operators("shortcut", again)
        if self.residual:
            operators.append(self._sum_pass(source))
            source = source.written(made_by=Module.RESIDUAL)
        operators += activation_pass("activation", self.activation, source, module=Module.RESIDUAL)
        return tuple(operators)

    def _output(self, source: FeatureMap) -> FeatureMap:
        for part in self.parts:
            source = part.output(source)
        return source

    def _sum_pass(self, summand: FeatureMap) -> MemoryPass:
        """Forward reads both and writes the sum; backward adds the gradients of both where they meet.

        A dropout reads and writes what is added, and its mask, before; and the gradient after.
        """
        mask = dropout_mask(
            "residual", elements=summand.elements, dropout=self.dropout, module=Module.RESIDUAL
        )
        mask_bytes = sum(tensor.size_bytes for tensor in mask)
        moved = (5 if mask else 3) * summand.size_bytes + mask_bytes
        return MemoryPass(
            name="residual",
            module=Module.RESIDUAL,
            kind="bias_dropout_add" if mask else "add",
            forward_bytes=moved,
            backward_bytes=moved,
            saved=mask,
        )

    def _check_sum(self) -> None:
        """Refuse a sum of maps of different shapes, and a shortcut to nothing."""
        if not self.residual:
            if self.shortcut:
                raise UnfitValue("shortcut", "goes with residual alone")
            return
        added = self.shortcut
        found = (added.inputs, added.outputs, added.stride) if added else (self.inputs, self.inputs, 1)
        if found != (self.inputs, self.outputs, self.stride):
            way = f"from {self.inputs} to {self.outputs} channels with a stride of {self.stride}"
            raise UnfitValue("shortcut" if added else "residual", f"must lead {way}, as the parts do")

    @property
    def _all_parts(self) -> tuple[Part, ...]:
        return self.parts if self.shortcut is None else (*self.parts, self.shortcut)


def _of_pixels(operator: Operator) -> Operator:
    """Return an operator that reads images: nothing needs their gradient."""
    return replace(operator, has_input_gradient=False) if isinstance(operator, MatrixProduct) else operator


def _saves_input(operators: list[Operator]) -> bool:
    """Tell whether some operator saves the layer's input."""
    kept = (op.saved for op in operators if not isinstance(op, CollectivePass))
    return any(tensor.made_by is None for saved in kept for tensor in saved)
