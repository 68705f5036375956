"""A layer as a list of operators; a workload as a chain of layers.

``Cut`` says how one layer is cut for one device. Every layer answers three questions: how many
parameters it has (whole and per device) and which operators it runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from planner.job import AttentionKind
from planner.units import Flops
from planner.workload.operators import Operator


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How a layer is cut on one device, and the numbers that fix its local shapes.

    ``element_bytes`` is the width of activations; ``vocabulary_multiple`` what the framework pads
    the vocabulary to (times tensor parallel), 1 for none.
    """

    micro_batch_size: int
    sequence_length: int
    tensor_parallel: int = 1
    sequence_parallel: bool = False
    context_parallel: int = 1
    attention: AttentionKind = AttentionKind.FLASH
    element_bytes: int = 2
    vocabulary_multiple: int = 1

    @property
    def local_tokens(self) -> int:
        """Tokens that one device of a tensor-parallel group works on: b s / c."""
        return self.micro_batch_size * self.sequence_length // self.context_parallel

    @property
    def sharded_tokens(self) -> int:
        """Tokens of the parts between tensor-parallel regions: b s / (c t) with sequence parallel."""
        return self.local_tokens // self.tensor_parallel if self.sequence_parallel else self.local_tokens


class Layer(Protocol):
    """One layer of a workload. Layers compare equal when they cost the same."""

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

    def operators(self, cut: Cut) -> Sequence[Operator]:
        """Return the operators of one micro-batch on one device, in forward order."""
        ...

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return useful forward FLOP of one sample, the causal half of attention only."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRun:
    """``count`` equal layers in a row."""

    layer: Layer
    count: int


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
        """Parameters of the whole model, tied weights counted once."""
        return sum(run.layer.parameters * run.count for run in self.runs)

    def count(self, kind: str) -> int:
        """Return how many layers of a kind the chain has."""
        return sum(run.count for run in self.runs if run.layer.kind == kind)

    def layer(self, kind: str) -> Layer:
        """Return the first layer of a kind; KeyError when the chain has none."""
        for run in self.runs:
            if run.layer.kind == kind:
                return run.layer
        raise KeyError(kind)

    def with_num_layers(self, num_layers: int, *, kind: str = "decoder") -> "Workload":
        """Return the same model with ``num_layers`` layers of one kind (its one run rescaled)."""
        runs = tuple(replace(run, count=num_layers) if run.layer.kind == kind else run for run in self.runs)
        return replace(self, runs=runs)

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return useful forward FLOP of one sample through the whole chain."""
        return sum(run.count * run.layer.forward_flops_per_sample(sequence_length) for run in self.runs)
