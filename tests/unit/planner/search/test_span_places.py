"""Chunks hold the same layers wherever they begin only where the chain is of one class; spans join in it."""

from dataclasses import replace

import numpy as np
import pytest

from planner.search.span_places import alike_anywhere, placed
from planner.search.spans import SpanFinder
from tests.unit.planner.cost.test_replay import even_problem


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        # Four chunks of one or two layers; the first one always begins with the first layer.
        ((0, 0, 0, 0, 0, 0), [True, True, True, True]),
        ((0, 1, 1, 1, 1, 1), [True, True, True, True]),
        ((0, 0, 1, 1, 1, 1), [True, False, True, True]),
        ((0, 1, 0, 1, 0, 1), [True, False, False, False]),
    ],
)
def test_chunks_are_alike_where_the_chain_is(sequence: tuple[int, ...], expected: list[bool]) -> None:
    problem = even_problem(stages=4, virtual_stages=1, micro_batches=2)
    problem = replace(problem, classes=problem.classes * 2, sequence=sequence)
    finder = SpanFinder(problem)
    runs = [finder.runs(chunk) for chunk in range(4)]
    spans = [own.only((own.end - own.start) <= 2) for own in runs]
    assert alike_anywhere(problem, spans) == expected


def test_spans_known_by_their_layers_are_put_where_they_join() -> None:
    problem = even_problem(stages=3, virtual_stages=1, micro_batches=2)
    problem = replace(problem, sequence=(0,) * 6)
    finder = SpanFinder(problem)
    spans = [finder.runs(chunk) for chunk in range(3)]
    # The first begin of as many layers, wherever that is, stands for all of them.
    elsewhere = [
        int(np.flatnonzero(own.end - own.start == size)[0])
        for own, size in zip(spans, (1, 2, 3), strict=True)
    ]
    joined = placed(spans, elsewhere)
    assert joined is not None
    found = [(int(own.start[i]), int(own.end[i])) for own, i in zip(spans, joined, strict=True)]
    assert found == [(0, 1), (1, 3), (3, 6)]
    without = [*spans[:1], spans[1].only(spans[1].start != 1), *spans[2:]]
    chosen = [
        int(np.flatnonzero(own.end - own.start == size)[0])
        for own, size in zip(without, (1, 2, 3), strict=True)
    ]
    assert placed(without, chosen) is None
