"""The head of a classifier: one vector per sample, or every token, to a few classes."""

from dataclasses import dataclass
from typing import ClassVar, Final

from planner.units import Bytes, Flops
from planner.workload.layers import HEAD, Cut, PlainLayer
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator, SavedTensor
from planner.workload.sizes import require_flag, require_size
from planner.workload.streams import JOB, Stream

LOSS_BYTES: Final = 4
"""The loss is computed in FP32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierLayer(PlainLayer):
    """A map to ``classes`` and its cross entropy, of one vector per sample, or with ``per_token`` of all.

    With ``pooler`` a dense map and a tanh come first; without ``classes`` (0) there is nothing else.
    """

    kind: ClassVar[str] = HEAD

    hidden: int
    classes: int
    bias: bool = False
    pooler: bool = False
    per_token: bool = False
    stream: Stream = JOB

    def __post_init__(self) -> None:
        require_size("hidden", self.hidden)
        require_size("classes", self.classes, smallest=0)
        for name in ("bias", "pooler", "per_token"):
            require_flag(name, getattr(self, name))

    @property
    def parameters(self) -> int:
        """Weights and biases of the maps."""
        pooler = self.pooler * (self.hidden + 1) * self.hidden
        return pooler + self.classes * (self.hidden + self.bias)

    def local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return all of them: a classifier is replicated."""
        return self.parameters

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return 2 per vector and weight."""
        vectors = self.stream.tokens(sequence_length) if self.per_token else 1
        return (
            2.0 * self.stream.sequences * vectors * self.hidden * (self.pooler * self.hidden + self.classes)
        )

    def output_bytes(self, cut: Cut) -> Bytes:  # noqa: ARG002 - the Layer protocol
        """Return none: the loss ends the chain."""
        return 0.0

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the maps and the loss."""
        own = self.stream.cut(cut)
        vectors = own.sharded_tokens if self.per_token else own.micro_batch_size
        maps: list[Operator] = []
        if self.pooler and vectors:
            maps += [self._map("pooler", self.hidden, vectors, own), self._activation(vectors, own)]
        if self.classes and vectors:
            maps += [self._map("classes", self.classes, vectors, own), self._loss(vectors)]
        return tuple(maps)

    def _map(self, name: str, columns: int, vectors: int, cut: Cut) -> MatrixProduct:
        size_bytes = cut.element_bytes * vectors * self.hidden
        made_by = Module.HEAD if self.pooler and name == "classes" else None
        return MatrixProduct(
            name=name,
            module=Module.HEAD,
            rows=vectors,
            columns=columns,
            inner=self.hidden,
            saved=(SavedTensor(name=f"{name}_input", size_bytes=size_bytes, made_by=made_by),),
        )

    def _activation(self, vectors: int, cut: Cut) -> MemoryPass:
        """Tanh saves its output, which the next map has saved already."""
        size_bytes = cut.element_bytes * vectors * self.hidden
        return MemoryPass(
            name="pooler_activation",
            module=Module.HEAD,
            kind="gelu",
            forward_bytes=2 * size_bytes,
            backward_bytes=3 * size_bytes,
        )

    def _loss(self, vectors: int) -> MemoryPass:
        """Log-softmax and its gradient over a few FP32 numbers per vector."""
        size_bytes = LOSS_BYTES * vectors * self.classes
        return MemoryPass(
            name="loss",
            module=Module.HEAD,
            kind="cross_entropy",
            forward_bytes=2 * size_bytes,
            backward_bytes=3 * size_bytes,
            saved=(SavedTensor(name="loss_softmax", size_bytes=size_bytes, made_by=Module.HEAD),),
        )
