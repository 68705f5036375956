"""Figures of merit of many predictions: errors, coverage, order, regret, and the noise beside them."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import sqrt
from typing import Final

import numpy as np

from planner.validation.comparison import Comparison

HIGH_QUANTILE: Final = 0.9
UNDERESTIMATE: Final = -0.05
"""Relative error from which a prediction of memory counts as too low."""
SMALLEST_CHOICE: Final = 2
"""Rows among which there is something to choose."""


def median(values: Sequence[float]) -> float | None:
    """Return the median; None of nothing."""
    return float(np.median(values)) if len(values) else None


def high_quantile(values: Sequence[float]) -> float | None:
    """Return the 90th percentile, interpolated between neighbours; None of nothing."""
    return float(np.quantile(values, HIGH_QUANTILE)) if len(values) else None


def share(flags: Iterable[bool]) -> float | None:
    """Return the share of true flags; None of nothing."""
    known = list(flags)
    return sum(known) / len(known) if known else None


def underestimated_share(comparisons: Iterable[Comparison]) -> float | None:
    """Return the share of predictions more than 5 % below the measurement."""
    return share(comparison.relative_error < UNDERESTIMATE for comparison in comparisons)


def kendall_tau(groups: Iterable[Sequence[Comparison]]) -> float | None:
    """Return Kendall's tau over all pairs within groups: pairs in order less pairs out of order, as a share.

    Pairs measured equal say nothing and are left out; pairs predicted equal count as neither.
    """
    signs = [
        np.sign(one.predicted - other.predicted) * np.sign(one.measured - other.measured)
        for group in groups
        for one, other in combinations(group, 2)
        if one.measured != other.measured
    ]
    return float(np.mean(signs)) if signs else None


def regret(groups: Iterable[Sequence[Comparison]]) -> float | None:
    """Return how much longer than the best the row predicted best took, the mean over groups.

    Rows that are predicted equally good stand for their mean.
    """
    losses = [_loss(group) for group in groups if len(group) >= SMALLEST_CHOICE]
    return float(np.mean(losses)) if losses else None


def _loss(group: Sequence[Comparison]) -> float:
    least = min(comparison.predicted for comparison in group)
    chosen = [comparison.measured for comparison in group if comparison.predicted == least]
    return float(np.mean(chosen)) / min(comparison.measured for comparison in group) - 1.0


def pair_noise(repeats: Iterable[Sequence[float]]) -> list[float]:
    """Return the relative noise that each pair of repeats shows: their difference over sqrt(2).

    The difference of two equally noisy values has sqrt(2) times the spread of one.
    """
    return [
        abs(one - other) / ((one + other) / 2) / sqrt(2)
        for group in repeats
        for one, other in combinations(group, 2)
    ]
