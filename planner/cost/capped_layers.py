"""How long stages take at least because layers are whole: memory and time let each hold so many of them."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.sweep import Floats

Whole = NDArray[np.int64]

HALVINGS: Final = 16
"""Until the time is known to a part of one layer in 65,536 of the range it is looked for in."""
ROUNDING: Final = 1e-9
"""Relative margin for quotients that come out whole."""


def most_whole_layers(room: Floats, held: Floats) -> Whole:
    """Return how many layers that hold so many bytes each fit some rooms; 0 where not even one does."""
    fitting = np.floor(np.maximum(room, 0.0) / np.maximum(held, 1.0) * (1 + ROUNDING) + ROUNDING)
    return fitting.astype(np.int64)


def capped_layers_ns(offsets: Floats, each: Floats, most: Whole, count: int, least: Floats) -> Floats:
    """Return times, at least ``least``, before which stages do not get so many whole layers done.

    Stage i takes ``offsets[i]`` and ``each`` for every layer that it holds, of which it may hold ``most[i]``:
    within a time t all stages hold at most sum(min(most[i], floor((t - offsets[i]) / each))). Before the
    first t at which that is ``count`` no plan ends; it is bracketed from below by halving. Infinite where
    stages may not hold so many at all. [stage, batch] and [batch].
    """
    most = np.minimum(most, count)
    found = np.where(most.sum(axis=0) >= count, least, np.inf)
    span = np.maximum(each, 1.0)
    # Not raised where it is right but for rounding.
    done = _held_within(least * (1 + 4 * ROUNDING), offsets, span, most) >= count
    rows = np.flatnonzero(~done & np.isfinite(found))
    if not len(rows):
        return found
    offsets, span, most, low = offsets[:, rows], span[rows], most[:, rows], least[rows]
    high = np.maximum(low, offsets.max(axis=0) + (most.max(axis=0) + 1) * span)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = _held_within(middle, offsets, span, most) >= count
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    found[rows] = low
    return found


def _held_within(time: Floats, offsets: Floats, each: Floats, most: Whole) -> Whole:
    layers = np.floor((time - offsets) / each * (1 + ROUNDING) + ROUNDING)
    held: Whole = np.clip(layers, 0, most).sum(axis=0).astype(np.int64)
    return held
