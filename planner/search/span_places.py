"""Which chunks hold the same layers wherever they begin, and where spans known by layers alone join."""

from collections.abc import Sequence

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.search.rows import Integers
from planner.search.spans import Spans, prefix_counts


def alike_anywhere(problem: PipelineProblem, spans: Sequence[Spans]) -> list[bool]:
    """Return for each chunk whether spans of as many layers hold the same ones, of one class as of another.

    Looks at every place where the chunk can begin when those before and after it hold some of their spans.
    """
    sizes = [own.end - own.start for own in spans]
    fewest = np.cumsum([0, *(own.min() for own in sizes)])
    most = np.cumsum([0, *(own.max() for own in sizes)])
    first = np.maximum(fewest[:-1], problem.num_layers - (most[-1] - most[:-1]))
    last = np.minimum(most[:-1], problem.num_layers - (fewest[-1] - fewest[:-1]))
    held = prefix_counts(problem)
    return [
        all(_is_alike(held, np.arange(low, high + 1), size) for size in np.unique(own).tolist())
        for own, low, high in zip(sizes, first, last, strict=True)
    ]


def _is_alike(held: Integers, starts: Integers, size: int) -> bool:
    """Whether as many layers are of the same classes after each start: [layers, class] before each layer."""
    starts = starts[starts + size < len(held)]
    classes = held[starts + size] - held[starts]
    return bool((classes == classes[:1]).all())


def placed(spans: Sequence[Spans], chosen: Sequence[int]) -> list[int] | None:
    """Return the spans of the same layers, run the same way, that begin where those before them end.

    ``chosen`` and the answer hold a number per chunk; None where such a span is no longer there.
    """
    numbers: list[int] = []
    begin = 0
    for own, number in zip(spans, chosen, strict=True):
        end = begin + int(own.end[number] - own.start[number])
        is_there = (own.start == begin) & (own.end == end) & (own.counts == own.counts[number]).all(axis=1)
        if not is_there.any():
            return None
        numbers.append(int(is_there.argmax()))
        begin = end
    return numbers
