"""The largest value among all points that are no larger along any axis, for very many points."""

from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

MOST_NODES_PER_POINT: Final = 8
"""A grid of no more nodes per point is looked at as one."""
MOST_COMPARED: Final = 2**16
"""Pairs of points that are compared one by one: below that taking the problem apart costs more."""


def largest_below(points: Floats, values: Floats) -> Floats:
    """Return for each point [points, dims] the largest value of all points <= it along every axis.

    Points count as their own. Where they fill a grid, running maxima along its axes tell. Else divide and
    conquer: points are parted by the last axis in two halves; those of the lower half are below those of
    the upper one along it, which leaves a problem of one axis less (Bentley, 1980). Takes
    n log(n)^(dims - 1) steps and memory in proportion to n.
    """
    found = np.full(len(values), -np.inf)
    if len(values):
        places = [np.unique(column, return_inverse=True) for column in points.T]
        lengths = [len(sizes) for sizes, _ in places]
        if prod(lengths) <= MOST_NODES_PER_POINT * len(values):
            return _on_grid(tuple(inverse.reshape(-1) for _, inverse in places), lengths, values)
        everything = np.arange(len(values))
        _raise(points, values, everything, everything, points.shape[1], found)
    return found


def _on_grid(nodes: tuple[Index, ...], lengths: list[int], values: Floats) -> Floats:
    table = np.full(lengths, -np.inf)
    np.maximum.at(table, nodes, values)
    for axis in range(len(lengths)):
        np.maximum.accumulate(table, axis=axis, out=table)
    return np.asarray(table[nodes], dtype=np.float64)


def _raise(points: Floats, values: Floats, below: Index, above: Index, dims: int, found: Floats) -> None:
    """Raise what was found for the points ``above`` by those ``below`` along the first ``dims`` axes."""
    if not len(below) or not len(above):
        return
    if dims == 0:
        found[above] = np.maximum(found[above], values[below].max())
    elif dims == 1:
        _raise_along_line(points[:, 0], values, below, above, found)
    elif len(below) * len(above) <= MOST_COMPARED:
        _raise_by_pairs(points[:, :dims], values, below, above, found)
    else:
        _raise_by_halves(points, values, below, above, dims, found)


def _raise_along_line(line: Floats, values: Floats, below: Index, above: Index, found: Floats) -> None:
    order = below[np.argsort(line[below], kind="stable")]
    largest = np.maximum.accumulate(values[order])
    place = np.searchsorted(line[order], line[above], side="right")
    has_any = place > 0
    reached = above[has_any]
    found[reached] = np.maximum(found[reached], largest[place[has_any] - 1])


def _raise_by_pairs(points: Floats, values: Floats, below: Index, above: Index, found: Floats) -> None:
    is_below = np.ones((len(above), len(below)), dtype=bool)
    for column in points.T:
        is_below &= column[above][:, None] >= column[below][None, :]
    largest = np.where(is_below, values[below][None, :], -np.inf).max(axis=1)
    found[above] = np.maximum(found[above], largest)


def _raise_by_halves(
    points: Floats, values: Floats, below: Index, above: Index, dims: int, found: Floats
) -> None:
    column = points[:, dims - 1]
    low, high = column[below], column[above]
    if low.max() <= high.min():
        _raise(points, values, below, above, dims - 1, found)
        return
    middle = _middle(low, high)
    lower, upper = low <= middle, high <= middle
    _raise(points, values, below[lower], above[~upper], dims - 1, found)
    _raise(points, values, below[lower], above[upper], dims, found)
    _raise(points, values, below[~lower], above[~upper], dims, found)


def _middle(low: Floats, high: Floats) -> float:
    """Return a value that parts both together: some lie at or below it, some above."""
    both = np.concatenate((low, high))
    middle = float(np.partition(both, len(both) // 2)[len(both) // 2])
    largest = float(both.max())
    return middle if middle < largest else float(both[both < largest].max())
