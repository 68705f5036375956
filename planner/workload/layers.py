"""A layer as a list of operators, and how it is cut for one device.

Every layer answers a few questions: how many parameters it has (whole, per device, those of experts),
which operators it runs, and which degrees split it evenly.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Protocol

from planner.job import AttentionKind
from planner.units import Bytes, Flops
from planner.workload.keeping import FUSED, Keeping
from planner.workload.operators import Operator

EMBEDDING: Final = "embedding"
ENCODER: Final = "encoder"
DECODER: Final = "decoder"
VISION: Final = "vision"
PROJECTOR: Final = "projector"
PREDICTION: Final = "mtp"
NORM: Final = "norm"
HEAD: Final = "head"
"""The kinds of layers: their roles in a model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How a layer is cut on one device, and the numbers that fix its local shapes.

    ``element_bytes`` is the width of activations; ``vocabulary_multiple`` what the framework pads
    the vocabulary to (times tensor parallel), 1 for none, and ``splits_vocabulary`` whether tensor
    parallel splits it at all. ``expert_imbalance`` is the load of the
    busiest expert rank over the mean. ``memory_length`` is the length of the encoder's output where it
    is not ``sequence_length``. Around attention ``head_exchange`` of the context-parallel ranks trade a part
    of the sequence for a part of the heads; over the rest of them keys and values go round in a ring, or
    where it ``gathers_keys`` are gathered.
    """

    micro_batch_size: int
    sequence_length: int
    tensor_parallel: int = 1
    sequence_parallel: bool = False
    context_parallel: int = 1
    head_exchange: int = 1
    gathers_keys: bool = False
    expert_parallel: int = 1
    expert_tensor_parallel: int = 1
    expert_imbalance: float = 1.0
    memory_length: int | None = None
    attention: AttentionKind = AttentionKind.FLASH
    element_bytes: int = 2
    vocabulary_multiple: int = 1
    keeping: Keeping = FUSED
    splits_vocabulary: bool = True

    @property
    def local_tokens(self) -> int:
        """Tokens that one device of a tensor-parallel group works on: b s / c."""
        return self.micro_batch_size * self.sequence_length // self.context_parallel

    @property
    def unsplit(self) -> "Cut":
        """The cut of a sequence that neither sequence nor context parallel splits."""
        return replace(self, sequence_parallel=False, context_parallel=1, head_exchange=1, gathers_keys=False)

    @property
    def of_vocabulary(self) -> "Cut":
        """The cut of what has a row or a column per word: whole where the vocabulary is not split."""
        if self.splits_vocabulary or self.tensor_parallel == 1:
            return self
        return replace(self, tensor_parallel=1, sequence_parallel=False)

    @property
    def sharded_tokens(self) -> int:
        """Tokens of the parts between tensor-parallel regions: b s / (c t) with sequence parallel."""
        return self.local_tokens // self.tensor_parallel if self.sequence_parallel else self.local_tokens

    def activation_bytes(self, width: int) -> Bytes:
        """Return the bytes of one activation between tensor-parallel regions, so many channels wide."""
        return float(self.element_bytes * self.sharded_tokens * width)


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """A number of equal pieces of a layer that the degree of one mesh axis has to divide.

    Where the pieces ``replicate``, a multiple of their number will do as well.
    """

    name: str
    pieces: int
    axis: str
    replicate: bool = False

    def allows(self, degree: int) -> bool:
        """Tell whether a degree splits the pieces evenly."""
        return self.pieces % degree == 0 or (self.replicate and degree % self.pieces == 0)


class Layer(Protocol):
    """One layer of a workload. Layers compare equal, and hash alike, when they cost the same."""

    def __hash__(self) -> int:
        """Return the hash of what it costs by."""
        ...

    @property
    def kind(self) -> str:
        """Its role: embedding, decoder, norm, head, ..."""
        ...

    @property
    def parameters(self) -> int:
        """Parameters of the whole layer as the model counts them (a tied head has none)."""
        ...

    def local_parameters(self, cut: Cut) -> int:
        """Return parameters that one device holds, padding and replicas included (a tied head: none)."""
        ...

    def tied_local_parameters(self, cut: Cut) -> int:
        """Return parameters that one device holds twice when the tied layer sits on another stage; else 0."""
        ...

    def local_expert_parameters(self, cut: Cut) -> int:
        """Return those of the local parameters that are split over expert parallel: routed experts."""
        ...

    @property
    def idle_parameters(self) -> int:
        """Parameters that one token leaves unused: the experts that it is not sent to."""
        ...

    @property
    def buffers(self) -> int:
        """Numbers that the layer keeps and nothing trains, such as the correction bias of a router."""
        ...

    @property
    def splits(self) -> tuple[Split, ...]:
        """What the parallel degrees have to divide."""
        ...

    def operators(self, cut: Cut) -> Sequence[Operator]:
        """Return the operators of one micro-batch on one device, in forward order."""
        ...

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes that one device hands to the next layer for one micro-batch."""
        ...

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return useful forward FLOP of one sample, the causal half of attention only."""
        ...


class PlainLayer:
    """What a layer answers that has no ties, no experts, no buffers, and nothing to split evenly."""

    __slots__ = ()

    def tied_local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return none."""
        return 0

    def local_expert_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return none."""
        return 0

    @property
    def idle_parameters(self) -> int:
        """None: every token meets every parameter."""
        return 0

    @property
    def buffers(self) -> int:
        """None."""
        return 0

    @property
    def splits(self) -> tuple[Split, ...]:
        """Nothing."""
        return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRun:
    """``count`` equal layers in a row."""

    layer: Layer
    count: int


def runs_of(layers: Iterable[Layer]) -> tuple[LayerRun, ...]:
    """Return layers in order as runs of equal ones."""
    return tuple(LayerRun(layer=layer, count=len(list(equal))) for layer, equal in groupby(layers))


def at_depth(layers: Sequence[Layer], depth: int) -> list[Layer]:
    """Return the first ``depth`` layers of a model, or more of them in the period of its last half."""
    count = len(layers)
    period = next(
        period
        for period in range(1, count + 1)
        if all(layers[place] == layers[place - period] for place in range(max(period, count // 2), count))
    )
    deeper = list(layers[:depth])
    while len(deeper) < depth:
        deeper.append(deeper[-period])
    return deeper


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A chain of layers in execution order, and what identifies it."""

    name: str
    family: str
    runs: tuple[LayerRun, ...]
    default_sequence_length: int | None = None
    not_understood: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """Parameters of the whole model, tied weights counted once, extra prediction layers not at all."""
        return self._sum(lambda layer: 0 if layer.kind == PREDICTION else layer.parameters)

    @property
    def prediction_parameters(self) -> int:
        """Parameters of extra prediction layers, which help in training and are left out of the model."""
        return self._sum(lambda layer: layer.parameters if layer.kind == PREDICTION else 0)

    @property
    def active_parameters(self) -> int:
        """Parameters that work on any one token: all but those of the experts that it is not sent to."""
        return self.parameters - self._sum(
            lambda layer: 0 if layer.kind == PREDICTION else layer.idle_parameters
        )

    @property
    def buffers(self) -> int:
        """Numbers that the model keeps and nothing trains."""
        return self._sum(lambda layer: 0 if layer.kind == PREDICTION else layer.buffers)

    @property
    def depth_kind(self) -> str:
        """The kind of layer that ``num_layers`` counts: decoder layers, else encoder layers."""
        return next((kind for kind in (DECODER, ENCODER) if self.count(kind)), DECODER)

    def count(self, kind: str) -> int:
        """Return how many layers of a kind the chain has."""
        return sum(run.count for run in self.runs if run.layer.kind == kind)

    def layer(self, kind: str) -> Layer:
        """Return the first layer of a kind; KeyError when the chain has none."""
        for run in self.runs:
            if run.layer.kind == kind:
                return run.layer
        raise KeyError(kind)

    def with_num_layers(self, num_layers: int, *, kind: str | None = None) -> "Workload":
        """Return the same model with ``num_layers`` layers of one kind, by default its ``depth_kind``.

        A shallower model keeps its first layers; a deeper one goes on with the period of its last half.
        """
        kind = kind or self.depth_kind
        layers = [run.layer for run in self.runs for _ in range(run.count) if run.layer.kind == kind]
        if not layers:
            return self
        middle = runs_of(at_depth(layers, num_layers))
        start = next(place for place, run in enumerate(self.runs) if run.layer.kind == kind)
        after = (run for run in self.runs[start:] if run.layer.kind != kind)
        return replace(self, runs=(*self.runs[:start], *middle, *after))

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return useful forward FLOP of one sample through the whole chain."""
        return sum(run.count * run.layer.forward_flops_per_sample(sequence_length) for run in self.runs)

    def _sum(self, figure: Callable[[Layer], int]) -> int:
        return sum(run.count * figure(run.layer) for run in self.runs)
