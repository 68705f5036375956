"""Weights of one path per stage under which a layer counts alike on every stage.

Any weights that are not negative give a true bound; these give the best one while every stage may hold
any number of layers. ``extra`` is what a layer of stage 0 adds to every path besides, in units of what
it adds to the path of a stage it isn't on.
"""

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


def through_shares(own: Reals, extra: Reals) -> Reals:
    """Return shares of paths that count only the layers of their own stage, and those of stage 0.

    ``own`` and ``extra`` are the two weights of each path, in any one unit.
    """
    if not own.all():
        return np.ones(len(own))
    shares: Reals = 1 / own
    shares[0] *= max(1 - float(extra[1:] @ shares[1:]), 0.0)
    return shares


def gpipe_shares(num_stages: int, num_micro_batches: int, extra: float) -> Reals:
    """Return shares of paths that count every layer once, those of their own stage m times."""
    if num_micro_batches == 1:
        return np.ones(num_stages)
    beyond = extra / (num_micro_batches - 1)
    shares = np.full(num_stages, (1 + beyond) / num_stages)
    shares[0] = max(shares[0] - beyond, 0.0)
    return shares


def pipeline_shares(own: Reals, goes_twice: NDArray[np.bool_], extra: float) -> Reals:
    """Return shares of 1F1B paths: once the stages before, ``own`` times their own.

    Paths that go down and back twice count the stages after them twice, others not at all. The
    difference of two neighbouring stages' conditions gives each share from the one before; the first
    one follows from all of them adding up to one.
    """
    if (own <= 1).any():
        return np.ones(len(own))
    factors, constants = [1.0], [0.0]
    passed = own - 2 * goes_twice
    for stage in range(len(own) - 1):
        added = extra if stage == 0 else 0.0
        factors.append(factors[-1] * float(passed[stage]) / (float(own[stage + 1]) - 1))
        constants.append((constants[-1] * float(passed[stage]) + added) / (float(own[stage + 1]) - 1))
    first = (1 - sum(constants)) / sum(factors)
    shares: Reals = np.maximum(np.array(factors) * first + np.array(constants), 0.0)
    return shares if shares.sum() > 0 else np.ones(len(own))
