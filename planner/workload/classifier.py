"""The head of a classifier: one vector per sample, or every token, to a few classes."""

from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar, Final

from planner.units import Bytes, Flops
from planner.workload.layers import HEAD, Cut, PlainLayer
from planner.workload.operators import (
    Collective,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Phase,
    SavedTensor,
)
from planner.workload.sizes import require_flag, require_size
from planner.workload.streams import JOB, Stream
from planner.workload.tensor_parallel import entering_collectives, tensor_collective

LOSS_BYTES: Final = 4
"""The loss is computed in FP32."""
MAX_CLASSES: Final = 10**9
"""Above any number of classes that can be meant: faces, products and pages come in hundreds of millions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierLayer(PlainLayer):
    """A map to ``classes`` and its cross entropy, of one vector per sample, or with ``per_token`` of all.

    With ``pooler`` a dense map and a tanh come first; without ``classes`` (0) there is nothing else, and
    one class is a binary decision. A ``sharded`` one splits its classes over tensor parallel, as a head
    does its vocabulary; another is repeated on every device.
    """

    kind: ClassVar[str] = HEAD

    hidden: int
    classes: int
    bias: bool = False
    pooler: bool = False
    per_token: bool = False
    sharded: bool = False
    stream: Stream = JOB

    def __post_init__(self) -> None:
        require_size("hidden", self.hidden)
        require_size("classes", self.classes, smallest=0, largest=MAX_CLASSES)
        for name in ("bias", "pooler", "per_token", "sharded"):
            require_flag(name, getattr(self, name))

    @property
    def parameters(self) -> int:
        """Weights and biases of the maps."""
        return self._parameters(self.classes)

    def local_parameters(self, cut: Cut) -> int:
        """Return the pooler and the device's classes: the largest of uneven shards, or all of them."""
        return self._parameters(self._local_classes(cut))

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
        own = self._vectors_cut(self.stream.cut(cut))
        maps: list[Operator] = []
        if self.pooler and own.sharded_tokens:
            vectors = own.sharded_tokens
            maps += [self._map("pooler", self.hidden, vectors, own), self._activation(vectors, own)]
        if self.classes and own.sharded_tokens:
            maps += self._sharded_classes(own) if self._is_split(own) else self._whole_classes(own)
        return tuple(maps)

    def _whole_classes(self, cut: Cut) -> tuple[Operator, ...]:
        """Return a map that every device runs over its own vectors."""
        vectors = cut.sharded_tokens
        return (self._map("classes", self.classes, vectors, cut), self._loss(vectors, self.classes))

    def _sharded_classes(self, cut: Cut) -> tuple[Operator, ...]:
        """Return a map of all vectors to the device's classes, and a loss over all parts.

        Maximum, target and sum of exponentials of every vector are an FP32 all-reduce each.
        """
        vectors, classes = cut.local_tokens, self._local_classes(cut)
        return (
            *entering_collectives(product="classes", module=Module.HEAD, hidden=self.hidden, cut=cut),
            self._map("classes", classes, vectors, cut),
            *self._loss_collectives(vectors),
            self._loss(vectors, classes),
        )

    def _map(self, name: str, columns: int, vectors: int, cut: Cut) -> MatrixProduct:
        """Return a map, which saves the device's shard of its input."""
        size_bytes = cut.element_bytes * cut.sharded_tokens * self.hidden
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

    def _loss(self, vectors: int, classes: int) -> MemoryPass:
        """Log-softmax and its gradient over the FP32 numbers of every vector."""
        size_bytes = LOSS_BYTES * vectors * classes
        return MemoryPass(
            name="loss",
            module=Module.HEAD,
            kind="cross_entropy",
            forward_bytes=2 * size_bytes,
            backward_bytes=3 * size_bytes,
            saved=(SavedTensor(name="loss_softmax", size_bytes=size_bytes, made_by=Module.HEAD),),
        )

    def _loss_collectives(self, vectors: int) -> tuple[CollectivePass, ...]:
        return tuple(
            tensor_collective(
                name,
                Module.HEAD,
                Collective.ALL_REDUCE,
                phase=Phase.FORWARD,
                payload_bytes=float(LOSS_BYTES * vectors),
            )
            for name in ("loss_maximum", "loss_target", "loss_sum")
        )

    def _vectors_cut(self, own: Cut) -> Cut:
        """Return the cut of what is sorted: all tokens, or one vector of each sequence on every device."""
        if self.per_token:
            return own
        return replace(own.unsplit, sequence_length=1)

    def _is_split(self, cut: Cut) -> bool:
        return self.sharded and cut.tensor_parallel > 1

    def _local_classes(self, cut: Cut) -> int:
        return ceil(self.classes / cut.tensor_parallel) if self.sharded else self.classes

    def _parameters(self, classes: int) -> int:
        pooler = self.pooler * (self.hidden + 1) * self.hidden
        return pooler + classes * (self.hidden + self.bias)
