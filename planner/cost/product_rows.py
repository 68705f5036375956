"""Measured matrix products of one device, sorted by who measured them and how."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.measurements import KernelTable, Source
from planner.profile import Profile
from planner.units import Flops, FlopsPerSecond
from planner.workload.operators import Phase

Floats = NDArray[np.float64]
Shapes = NDArray[np.int64]

LEAST_FILL: Final = 0.4
"""A grid counts as one when this share of its nodes was measured; else its rows are scattered points."""
LEAST_LADDER: Final = 3
"""A grid has at least so many sizes along each axis."""
LONG_FLOPS: Final[Flops] = 1e12
LEAST_LONG: Final = 12
"""FLOP of a long product, and so many of them show the rate that a device holds."""
BURSTS: Final = "burst_sources"
"""The fact that names sources which time short bursts on a cool device."""
BEST_SHAPES: Final = "best_shape_sources"
"""The fact that names sources which searched for the shape that runs best."""
HOST_BOUND: Final = "host_bound_seconds"
"""The fact that says below which time a source shows the host's launch rather than the device."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stack:
    """Distinct products that one software stack was timed on: shapes [rows, 3] as m, n, k.

    ``is_burst`` tells short bursts on a cool device from kernels at the pace of a running step.
    """

    shapes: Shapes
    seconds: Floats
    is_burst: bool

    @property
    def flops(self) -> Floats:
        """Two FLOP per multiply-add."""
        return np.asarray(2.0 * self.shapes.astype(np.float64).prod(axis=1), dtype=np.float64)

    def where(self, keep: NDArray[np.bool_]) -> "Stack":
        """Return the stack with some of its rows."""
        return replace(self, shapes=self.shapes[keep], seconds=self.seconds[keep])


def best_rate_of(stack: Stack) -> FlopsPerSecond:
    """Return the best rate among a stack's rows."""
    return float((stack.flops / stack.seconds).max())


def best_shape_rate(profiles: Sequence[Profile], *, dtypes: Sequence[str]) -> FlopsPerSecond | None:
    """Return the best rate that searches for the best shape found, or None where nobody searched."""
    rates = [
        best_rate_of(_stack((True, ""), [found]))
        for profile, table in _tables(profiles, dtypes=dtypes, phase=Phase.FORWARD)
        for found in [
            _rows_where(table, [_is_of(source, profile, BEST_SHAPES) for source in profile.sources])
        ]
        if len(found)
    ]
    return max(rates, default=None)


def stacks_of(profiles: Sequence[Profile], *, dtypes: Sequence[str], phase: Phase) -> tuple[Stack, ...]:
    """Return the stacks that timed one phase of products in any of the formats.

    Bursts of different files are different stacks; rows at a step's pace are one. Rows that time the
    host's launch count as none, and so do best shapes of a search.
    """
    parts: dict[StackKey, list[KernelTable]] = {}
    for profile, table in _tables(profiles, dtypes=dtypes, phase=phase):
        for key, rows in _by_stack(profile, table):
            parts.setdefault(key, []).append(rows)
    return tuple(_stack(key, rows) for key, rows in sorted(parts.items(), key=lambda item: item[0]))


def together(stacks: Sequence[Stack]) -> Stack:
    """Return the rows of all stacks as one."""
    if not stacks:
        return Stack(shapes=np.zeros((0, 3), dtype=np.int64), seconds=np.zeros(0), is_burst=False)
    return Stack(
        shapes=np.concatenate([stack.shapes for stack in stacks]),
        seconds=np.concatenate([stack.seconds for stack in stacks]),
        is_burst=stacks[0].is_burst,
    )


StackKey = tuple[bool, str]
"""Whether bursts were timed, and a name."""


def held_in_step(stack: Stack, *, factor: float) -> Stack:
    """Return rows at a step's pace as a step that runs at the power limit holds them.

    A short kernel that was timed by itself ran cool: in a step it is no faster than long ones usually
    are, and those take ``factor`` times as long as in a loop of their own.
    """
    is_long = stack.flops >= LONG_FLOPS
    if stack.is_burst or is_long.sum() < LEAST_LONG:
        return stack
    usual = float(np.median(stack.flops[is_long] / stack.seconds[is_long]))
    return replace(stack, seconds=factor * np.maximum(stack.seconds, stack.flops / usual))


def _tables(
    profiles: Sequence[Profile], *, dtypes: Sequence[str], phase: Phase
) -> Iterator[tuple[Profile, KernelTable]]:
    for profile in profiles:
        for table in profile.tables("matrix_product"):
            if table.dtype in dtypes and table.phase == phase:
                yield profile, table


def _by_stack(profile: Profile, table: KernelTable) -> Iterator[tuple[StackKey, KernelTable]]:
    bounds = profile.facts.get(HOST_BOUND, {})
    for number in np.unique(table.source_index).tolist():
        source = profile.sources[number]
        if _is_of(source, profile, BEST_SHAPES):
            continue
        is_burst = _is_of(source, profile, BURSTS)
        name = f"{source.source}\n{source.source_ref}" if is_burst else ""
        counts = (table.source_index == number) & (table.seconds >= bounds.get(source.source, 0.0))
        if counts.any():
            yield (is_burst, name), table.rows(np.flatnonzero(counts))


def _is_of(source: Source, profile: Profile, fact: str) -> bool:
    return source.source in profile.facts.get(fact, ())


def _rows_where(table: KernelTable, is_wanted: Sequence[bool]) -> KernelTable:
    return table.rows(np.flatnonzero(np.array(is_wanted, dtype=bool)[table.source_index]))


def _shapes(table: KernelTable) -> Shapes:
    return np.stack([table.column(dim) for dim in "mnk"], axis=1)


def _stack(key: StackKey, tables: Sequence[KernelTable]) -> Stack:
    """Return the rows together, each shape once with the median of its times."""
    unique, inverse = np.unique(np.concatenate([_shapes(t) for t in tables]), axis=0, return_inverse=True)
    times = np.concatenate([table.seconds for table in tables])
    order = np.lexsort((times, inverse.reshape(-1)))
    starts = np.searchsorted(inverse.reshape(-1)[order], np.arange(len(unique) + 1))
    middle = (starts[:-1] + starts[1:] - 1) // 2
    return Stack(shapes=unique, seconds=times[order][middle], is_burst=key[0])


def grid_of(stack: Stack) -> tuple[tuple[Floats, ...], NDArray[np.bool_]] | None:
    """Return the ladders of the largest well-filled grid among the rows, and which rows stand on it.

    The emptiest size goes first, until every size of every axis fills its part; None when too
    little is left.
    """
    keep = np.ones(len(stack.shapes), dtype=bool)
    while keep.any():
        counts = [np.unique(column, return_counts=True) for column in stack.shapes[keep].T]
        if min(len(sizes) for sizes, _ in counts) < LEAST_LADDER:
            return None
        nodes = float(np.prod([len(sizes) for sizes, _ in counts]))
        fills = [(count * len(sizes) / nodes, sizes) for sizes, count in counts]
        emptiest = min(range(3), key=lambda axis: fills[axis][0].min())
        share, sizes = fills[emptiest]
        if share.min() >= LEAST_FILL:
            return tuple(sizes.astype(np.float64) for sizes, _ in counts), keep
        keep &= ~np.isin(stack.shapes[:, emptiest], sizes[share <= share.min()])
    return None


def shape_of_phase(rows: int, columns: int, inner: int, *, phase: Phase) -> tuple[int, int, int]:
    """Return m, n, k of one phase of a product.

    Forward is [rows, inner] x [inner, columns]; the input gradient [rows, columns] x [columns,
    inner]; the weight gradient (or that of the second operand) [columns, rows] x [rows, inner].
    """
    if phase is Phase.FORWARD:
        return rows, columns, inner
    if phase is Phase.INPUT_GRADIENT:
        return rows, inner, columns
    if phase is Phase.WEIGHT_GRADIENT:
        return columns, inner, rows
    raise ValueError(f"a matrix product has no phase {phase!r}")
