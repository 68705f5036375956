"""A layer of any module: its operators one by one, as a tracer saw them.

Sizes are those of one sample, so that any micro-batch can be priced; what does not grow with the batch
is told apart. Nothing says how such a layer could be split, so only whole samples are spread.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Final

from planner.units import Bytes, Flops
from planner.workload.layers import Cut, PlainLayer, Split
from planner.workload.operators import (
    AttentionCore,
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Saved,
    SavedTensor,
)
from planner.workload.sizes import MAX_COUNT, UnfitValue, require_flag, require_size, require_word, shown

MAX_ELEMENTS: Final = 10**15
"""Above any number of elements, bytes or FLOP of one sample that can be meant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """Data of one sample, and with ``fixed`` of a micro-batch however many samples it has.

    ``elements`` are as wide as activations; ``bytes`` have a width of their own (masks, indices, FP32
    statistics).
    """

    elements: int = 0
    bytes: int = 0
    fixed_elements: int = 0
    fixed_bytes: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            require_size(field.name, getattr(self, field.name), smallest=0, largest=MAX_ELEMENTS)

    def size_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of one micro-batch."""
        sample = cut.element_bytes * self.elements + self.bytes
        return float(
            cut.micro_batch_size * sample + cut.element_bytes * self.fixed_elements + self.fixed_bytes
        )


EMPTY: Final = Volume()
"""No data."""


class SampleDim(StrEnum):
    """The dimension of a matrix product that grows with the samples of a micro-batch."""

    ROWS = "rows"
    COLUMNS = "columns"
    INNER = "inner"
    COUNT = "count"
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedProduct:
    """A matrix product, or a convolution as the product that it is; ``repeat`` of them run.

    ``grows`` is the dimension whose size is that of one sample. Each of them runs ``steps`` times with the
    same weights, every time after the one before; ``saved`` is for all steps of one. ``input_elements``
    are those of one sample of a convolution, whose windows overlap. Without ``has_input_gradient`` nothing
    before it is trained: backward makes the gradient of the weights alone.
    """

    name: str
    rows: int
    columns: int
    inner: int
    count: int = 1
    repeat: int = 1
    steps: int = 1
    grows: SampleDim = SampleDim.ROWS
    has_weights: bool = True
    has_input_gradient: bool = True
    input_elements: int | None = None
    saved: Volume = EMPTY

    def __post_init__(self) -> None:
        _require_text("name", self.name)
        for name in ("rows", "columns", "inner", "count"):
            require_size(name, getattr(self, name), largest=MAX_ELEMENTS)
        for name in ("repeat", "steps"):
            require_size(name, getattr(self, name), largest=MAX_COUNT)
        if self.input_elements is not None:
            require_size("input_elements", self.input_elements, largest=MAX_ELEMENTS)
        for name in ("has_weights", "has_input_gradient"):
            require_flag(name, getattr(self, name))
        require_word("grows", self.grows, SampleDim)

    @property
    def flops_per_sample(self) -> Flops:
        """Two FLOP per multiply-add; none where the product does not grow with the samples."""
        if self.grows is SampleDim.NONE:
            return 0.0
        return 2.0 * self.repeat * self.steps * self.count * self.rows * self.columns * self.inner

    def operators(self, cut: Cut) -> Iterator[MatrixProduct]:
        """Yield the products of a micro-batch."""
        product = self._product(cut)
        for name in _names(self.name, self.repeat):
            yield replace(product, name=name)

    def _product(self, cut: Cut) -> MatrixProduct:

        def size(dim: SampleDim, per_sample: int) -> int:
            return per_sample * (cut.micro_batch_size if dim is self.grows else 1)

        inputs = self.input_elements
        return MatrixProduct(
            name=self.name,
            module=Module.TRACED,
            rows=size(SampleDim.ROWS, self.rows),
            columns=size(SampleDim.COLUMNS, self.columns),
            inner=size(SampleDim.INNER, self.inner),
            count=size(SampleDim.COUNT, self.count),
            repeats=self.steps,
            has_weights=self.has_weights,
            has_input_gradient=self.has_input_gradient,
            input_elements=None if inputs is None else cut.micro_batch_size * inputs,
            saved=_saved(self.name, self.saved, cut),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedAttention:
    """A fused attention core over ``batch`` sequences of one sample; ``repeat`` of them run."""

    name: str
    query_length: int
    key_length: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    causal: bool
    batch: int = 1
    repeat: int = 1
    saved: Volume = EMPTY

    def __post_init__(self) -> None:
        _require_text("name", self.name)
        for name in ("query_length", "key_length", "heads", "kv_heads", "head_dim", "value_dim", "batch"):
            require_size(name, getattr(self, name), largest=MAX_ELEMENTS)
        require_size("repeat", self.repeat, largest=MAX_COUNT)
        require_flag("causal", self.causal)

    @property
    def flops_per_sample(self) -> Flops:
        """Both products over the pairs that the mask leaves."""
        return self.repeat * self._core(Cut(micro_batch_size=1, sequence_length=1)).forward_flops

    def operators(self, cut: Cut) -> Iterator[AttentionCore]:
        """Yield the cores of a micro-batch."""
        core = self._core(cut)
        for name in _names(self.name, self.repeat):
            yield replace(core, name=name)

    def _core(self, cut: Cut) -> AttentionCore:
        return AttentionCore(
            name=self.name,
            module=Module.CORE_ATTENTION,
            batch=cut.micro_batch_size * self.batch,
            query_length=self.query_length,
            key_length=self.key_length,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            value_dim=self.value_dim,
            causal=self.causal,
            saved=_saved(self.name, self.saved, cut),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedPass:
    """A pass bound by memory bandwidth: what forward and backward read and write; ``repeat`` of them run.

    ``resembles`` names the measured kernel that it is priced as. ``flops`` are those of one sample that
    count as useful though they run in a pass (depth-wise convolutions).
    """

    name: str
    resembles: str
    forward: Volume = EMPTY
    backward: Volume = EMPTY
    repeat: int = 1
    flops: int = 0
    saved: Volume = EMPTY

    def __post_init__(self) -> None:
        _require_text("name", self.name)
        _require_text("resembles", self.resembles)
        require_size("repeat", self.repeat, largest=MAX_COUNT)
        require_size("flops", self.flops, smallest=0, largest=MAX_ELEMENTS)

    @property
    def flops_per_sample(self) -> Flops:
        """Useful FLOP of one sample."""
        return float(self.repeat * self.flops)

    def operators(self, cut: Cut) -> Iterator[MemoryPass]:
        """Yield the passes of a micro-batch, all in one."""
        yield MemoryPass(
            name=self.name,
            module=Module.TRACED,
            kind=self.resembles,
            forward_bytes=self.forward.size_bytes(cut),
            backward_bytes=self.backward.size_bytes(cut),
            forward_flops=cut.micro_batch_size * self.flops_per_sample,
            repeats=self.repeat,
            saved=_saved(self.name, self.saved, cut, times=self.repeat),
        )


TracedOperator = TracedProduct | TracedAttention | TracedPass


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedLayer(PlainLayer):
    """A part of a module by the operators that it runs; ``role`` is what a plan calls it.

    ``output`` is what it hands to the layers after it, ``saved_input`` what its operators save of its
    inputs, and ``other_input`` what has to be kept besides to run the layer a second time.
    ``buffers`` counts what is kept and not trained, ``tied_parameters`` those that a layer before it owns.
    """

    operators_of_sample: tuple[TracedOperator, ...]
    parameters: int = 0
    role: str = "traced"
    buffers: int = 0
    tied_parameters: int = 0
    output: Volume = EMPTY
    saved_input: Volume = EMPTY
    other_input: Volume = EMPTY

    def __post_init__(self) -> None:
        _require_text("role", self.role)
        for name in ("parameters", "buffers", "tied_parameters"):
            require_size(name, getattr(self, name), smallest=0, largest=MAX_ELEMENTS)
        if not self.operators_of_sample:
            raise UnfitValue("operators_of_sample", "must have at least one operator")
        seen: set[str] = set()
        for operator in self.operators_of_sample:
            if operator.name in seen:
                raise UnfitValue("operators_of_sample", f"have the name {shown(operator.name)} twice")
            seen.add(operator.name)

    @property
    def kind(self) -> str:
        """Its role."""
        return self.role

    def local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return all of them: nothing is split."""
        return self.parameters

    def tied_local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return those that a layer before it owns."""
        return self.tied_parameters

    @property
    def splits(self) -> tuple[Split, ...]:
        """One piece: neither its weights nor its samples can be split."""
        return WHOLE

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of everything that layers after it read and it or one before it made."""
        return self.output.size_bytes(cut)

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:  # noqa: ARG002 - the Layer protocol
        """Return the FLOP of products, cores and depth-wise convolutions; the job's length plays no part."""
        return sum(operator.flops_per_sample for operator in self.operators_of_sample)

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch, in forward order, its inputs saved by the first."""
        first, *others = (one for traced in self.operators_of_sample for one in traced.operators(cut))
        return (replace(first, saved=(*self._inputs(cut), *first.saved)), *others)

    def _inputs(self, cut: Cut) -> Saved:
        """Return what is saved of the layer's inputs, and what only running it again would need."""
        inputs = (
            SavedTensor(name="input", size_bytes=self.saved_input.size_bytes(cut), made_by=None),
            SavedTensor(
                name="other_input",
                size_bytes=self.other_input.size_bytes(cut),
                made_by=None,
                only_to_rerun=True,
            ),
        )
        return tuple(tensor for tensor in inputs if tensor.size_bytes)


WHOLE: Final = (
    Split(name="traced layer", pieces=1, axis="tensor_parallel"),
    Split(name="traced layer", pieces=1, axis="context_parallel"),
)


def _require_text(name: str, value: object) -> None:
    """Refuse what is no text, or none at all, with UnfitValue."""
    if not isinstance(value, str) or not value:
        raise UnfitValue(name, f"({shown(value)}) must be a text")


def _names(name: str, repeat: int) -> Iterator[str]:
    """Yield a name for each of some equal operators."""
    yield name
    for number in range(2, repeat + 1):
        yield f"{name} #{number}"


def _saved(name: str, volume: Volume, cut: Cut, *, times: int = 1) -> Saved:
    size_bytes = times * volume.size_bytes(cut)
    if not size_bytes:
        return ()
    return (SavedTensor(name=f"{name} saved", size_bytes=size_bytes, made_by=Module.TRACED),)
