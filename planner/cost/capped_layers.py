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
    whole = most.sum(axis=0) >= count
    span = np.maximum(each, 1.0)
    low = np.array(least, dtype=np.float64)
    high = np.maximum(low, offsets.max(axis=0) + (most.max(axis=0) + 1) * span)
    done = _held_within(low, offsets, span, most) >= count
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = _held_within(middle, offsets, span, most) >= count
        low, high = np.where(enough | done, low, middle), np.where(enough, middle, high)
    return np.where(whole, low, np.inf)


def _held_within(time: Floats, offsets: Floats, each: Floats, most: Whole) -> Whole:
    layers = np.floor((time - offsets) / each * (1 + ROUNDING) + ROUNDING)
    held: Whole = np.clip(layers, 0, most).sum(axis=0).astype(np.int64)
    return held
