"""The degrees of plans that leave devices idle: because no others come out even, or none is as fast.

A plan on fewer devices does the same work with less. So it is worth a look only where its work alone takes
less than the best plan known: most numbers of devices are ruled out before their meshes are enumerated.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from math import gcd
from typing import Final

from planner.search.space import Space
from planner.setting import degree_is_legal, divisors, legal_tensor_parallel

FEW_DEVICES: Final = 64
"""How many devices are so few that tensor x context parallel need not divide them."""

Degrees = tuple[int, int, int, int]
"""Tensor, context, pipeline and data parallel."""


def fewer_degrees(space: Space, *, least: int, most: int) -> Iterator[Degrees]:
    """Yield the degrees of meshes on at least and at most so many devices, fewer than there are."""
    setting, num_layers = space.setting, space.setting.num_layers
    samples = [
        degree for degree in divisors(setting.job.global_batch_size) if space.allowed("data_parallel", degree)
    ]
    stages = num_layers + 2 if setting.framework.pipeline_parallel else 1
    for tensor in _tensor_degrees(space, most):
        for context in _context_degrees(space, most // tensor):
            inside = tensor * context
            if not _is_tried(space, inside):
                continue
            for pipeline in range(1, min(stages, most // inside) + 1):
                if not space.allowed("pipeline_parallel", pipeline):
                    continue
                low = bisect_left(samples, -(-least // (inside * pipeline)))
                high = bisect_right(samples, most // (inside * pipeline))
                for data in samples[low:high]:
                    yield tensor, context, pipeline, data


def _is_tried(space: Space, inside: int) -> bool:
    """Whether a product of tensor and context parallel is tried beside idle devices."""
    chosen = {"tensor_parallel", "context_parallel"} & space.constraints.fixed.keys()
    return bool(chosen) or space.num_devices <= FEW_DEVICES or space.num_devices % inside == 0


def _tensor_degrees(space: Space, most: int) -> list[int]:
    setting = space.setting
    degrees = legal_tensor_parallel(setting) if setting.framework.tensor_parallel else (1,)
    return [degree for degree in degrees if degree <= most and space.allowed("tensor_parallel", degree)]


def _context_degrees(space: Space, most: int) -> list[int]:
    setting = space.setting
    can_split = setting.framework.context_parallel and setting.sequence_lengths
    return [
        degree
        for degree in (divisors(gcd(*setting.sequence_lengths)) if can_split else (1,))
        if degree <= most
        and space.allowed("context_parallel", degree)
        and degree_is_legal(setting, "context_parallel", degree)
    ]


def words(space: Space) -> str:
    """Return how many devices a search tries, in the words of a certificate."""
    which = "" if space.num_devices <= FEW_DEVICES else " with tensor x context parallel that divides them"
    return f"searched: all {space.num_devices}, and fewer{which} where those may be faster"
