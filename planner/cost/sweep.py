"""Layers timed for many micro-batch sizes at once: arrays of seconds that no layer undercuts.

A layer's operators grow with the micro-batch along lines, rounded to whole rows here and there. So the
operators of one sample and those of very many tell those of any size between, exactly where lines are
straight and from below where they are rounded; as larger operators never take less, so do their times.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.compute import KernelCosts
from planner.cost.mesh_links import MeshLinks
from planner.cost.tally import Cause, Family
from planner.units import Seconds
from planner.workload.operators import (
    AttentionCore,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Phase,
)

Floats = NDArray[np.float64]

MANY_SAMPLES: Final = 2**20
"""The large end of the lines: what rounding adds to it is lost among so many."""


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Seconds for each of several micro-batch sizes, or for all of them alike."""

    seconds: Floats

    def scaled(self, factor: float) -> "Sweep":
        """Return the time of ``factor`` times the work."""
        return self if factor == 1.0 else Sweep(self.seconds * factor)


NO_TIME: Final = Sweep(np.zeros(()))


class Sweeps:
    """Adds up sweeps: causes and errors do not matter to bounds."""

    def booked(self, timed: Sweep, *, cause: Cause, family: Family) -> Sweep:  # noqa: ARG002 - a Ledger
        """Return the same seconds."""
        return timed

    def total(self, amounts: Iterable[Sweep]) -> Sweep:
        """Return the sum of amounts."""
        parts = [amount.seconds for amount in amounts]
        return Sweep(sum(parts[1:], start=parts[0])) if parts else NO_TIME

    def exposed(
        self,
        communication: Sweep,
        *,
        behind_seconds: Any,  # noqa: ANN401 - a number or an array
        contention_fraction: float,
    ) -> Sweep:
        """Return what a communication beside so many seconds of work adds to it."""
        seconds = communication.seconds
        covered = np.minimum(seconds, behind_seconds)
        return Sweep(seconds - (1.0 - contention_fraction) * covered)

    def recast(self, amount: Sweep, cause: Cause, *, keep: Iterable[Cause]) -> Sweep:  # noqa: ARG002 - a Ledger
        """Return the same seconds."""
        return amount

    def launched(self, work: Sweep, *, host_seconds: Seconds, serial_fraction: float) -> Sweep:
        """Return work stretched to the time in which the host launches it, or by a part of that time."""
        if host_seconds <= 0:
            return work
        return Sweep(np.maximum(work.seconds + serial_fraction * host_seconds, host_seconds))


SWEEPS: Final = Sweeps()


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of an operator over the micro-batch size, by its values at one sample and at very many."""

    one: float
    many: float

    def at(self, size: int) -> float:
        """Return the figure at a size: exact on a straight line through the origin or a level one."""
        if self.many == self.one:
            return self.one
        if self.many == MANY_SAMPLES * self.one:
            return size * self.one
        if size == 1:
            return self.one
        return max(size * (self.many - self.one) / MANY_SAMPLES, min(self.one, self.many))

    def over(self, sizes: NDArray[np.int64]) -> Floats:
        """Return the figure at several sizes; see `at`."""
        if self.many == self.one:
            return np.full(len(sizes), self.one)
        if self.many == MANY_SAMPLES * self.one:
            return np.asarray(sizes * self.one, dtype=np.float64)
        grown = np.maximum(sizes * ((self.many - self.one) / MANY_SAMPLES), min(self.one, self.many))
        return np.asarray(np.where(sizes == 1, self.one, grown), dtype=np.float64)


def whole_at(size: int, one: int, many: int) -> int:
    """Return a whole number that a whole figure does not fall below at a size; at least 1."""
    if many == one:
        return one
    if many == MANY_SAMPLES * one:
        return size * one
    if size == 1:
        return one
    return max(size * (many - one) // MANY_SAMPLES, 1)


@dataclass(kw_only=True, eq=False)
class SweptCosts:
    """Kernels and collectives of one cost model, timed over micro-batch sizes; what was timed is kept."""

    kernels: KernelCosts
    sizes: Sequence[int]
    """All sizes of interest, ascending."""
    _vectors: dict[tuple[object, ...], Floats] = field(default_factory=dict, init=False)

    def over(self, count: int, key: tuple[object, ...], seconds: Callable[[int], Seconds]) -> Sweep:
        """Return the seconds for the first ``count`` sizes."""
        known = self._vectors.get(key)
        done = 0 if known is None else len(known)
        if done < count:
            new = np.array([seconds(size) for size in self.sizes[done:count]])
            known = self._vectors[key] = new if known is None else np.concatenate((known, new))
        assert known is not None
        return Sweep(known[:count])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SweptOperators:
    """The clocks of one layer's operators for the first ``count`` micro-batch sizes.

    ``many`` holds the operators of very many samples, by name.
    """

    costs: SweptCosts
    links: MeshLinks
    many: Mapping[str, Operator]
    count: int

    def matrix_product(self, op: MatrixProduct, *, phase: Phase) -> Sweep:
        """Return the time of a product in forward or as one of its gradients."""
        many = self.many[op.name]
        assert isinstance(many, MatrixProduct)
        is_head = op.module is Module.HEAD
        key = (
            *(op.rows, many.rows, op.columns, many.columns, op.inner, many.inner, op.count, many.count),
            *(op.repeats, op.has_weights, is_head, phase),
        )

        def seconds(size: int) -> Seconds:
            product = MatrixProduct(
                name="swept",
                module=Module.HEAD if is_head else Module.MLP,
                rows=whole_at(size, op.rows, many.rows),
                columns=whole_at(size, op.columns, many.columns),
                inner=whole_at(size, op.inner, many.inner),
                count=whole_at(size, op.count, many.count),
                repeats=op.repeats,
                has_weights=op.has_weights,
            )
            return self.costs.kernels.matrix_product(product, phase=phase).seconds

        return self.costs.over(self.count, key, seconds)

    def attention(self, op: AttentionCore, *, phase: Phase) -> Sweep:
        """Return the time of a fused attention core, forward or backward."""
        many = self.many[op.name]
        assert isinstance(many, AttentionCore)
        shape = (op.query_length, op.key_length, op.heads, op.kv_heads, op.head_dim, op.value_dim)
        mask = (op.causal, op.window, op.chunk, op.sinks)

        def seconds(size: int) -> Seconds:
            core = AttentionCore(
                name="swept",
                module=Module.CORE_ATTENTION,
                batch=whole_at(size, op.batch, many.batch),
                query_length=op.query_length,
                key_length=op.key_length,
                heads=op.heads,
                kv_heads=op.kv_heads,
                head_dim=op.head_dim,
                value_dim=op.value_dim,
                causal=op.causal,
                window=op.window,
                chunk=op.chunk,
                sinks=op.sinks,
            )
            return self.costs.kernels.attention(core, phase=phase).seconds

        return self.costs.over(self.count, (op.batch, many.batch, *shape, *mask, phase), seconds)

    def memory_pass(self, op: MemoryPass, *, phase: Phase) -> Sweep:
        """Return the time of a memory-bound pass, forward or backward."""
        many = self.many[op.name]
        assert isinstance(many, MemoryPass)
        forward = phase is Phase.FORWARD
        moved = Line(*((one.forward_bytes if forward else one.backward_bytes) for one in (op, many)))

        def seconds(size: int) -> Seconds:
            swept = MemoryPass(
                name="swept",
                module=Module.NORM,
                kind=op.kind,
                forward_bytes=moved.at(size),
                backward_bytes=moved.at(size),
                repeats=op.repeats,
            )
            return self.costs.kernels.memory_pass(swept, phase=phase).seconds

        return self.costs.over(self.count, (op.kind, moved, op.repeats, phase), seconds)

    def collective(self, op: CollectivePass) -> Sweep:
        """Return the time of a collective over the ranks of its axis."""
        many = self.many[op.name]
        assert isinstance(many, CollectivePass)
        payload = Line(op.payload_bytes, many.payload_bytes)
        shape = self.links.layer_shape(op)

        def seconds(size: int) -> Seconds:
            return self.links.collectives.seconds(
                op.operation, payload_bytes=payload.at(size), shape=shape
            ).seconds

        return self.costs.over(self.count, (op.operation, shape, payload), seconds)
