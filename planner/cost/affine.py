"""seconds = start + a FLOP + b bytes with nothing negative: what a few measured rows can tell."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fit_nonnegative(columns: Sequence[Floats], seconds: Floats, *, needed: int) -> Floats:
    """Return coefficients, none negative, that fit the seconds with the least relative squares.

    Every subset of the columns with column ``needed`` is tried and the best without a negative
    coefficient taken; with few columns that is exact. The needed column alone always fits.
    """
    design = np.stack(columns, axis=1) / seconds[:, None]
    best, least = np.zeros(len(columns)), np.inf
    others = [column for column in range(len(columns)) if column != needed]
    for count in range(len(columns)):
        for chosen in combinations(others, count):
            picked = sorted((needed, *chosen))
            solution = np.linalg.lstsq(design[:, picked], np.ones(len(seconds)), rcond=None)[0]
            squares = float(((design[:, picked] @ solution - 1.0) ** 2).sum())
            if solution.min() >= 0 and solution[picked.index(needed)] > 0 and squares < least:
                best, least = np.zeros(len(columns)), squares
                best[picked] = solution
    return best
