"""Chunks hold the same layers wherever they begin only where the chain is of one class there."""

from dataclasses import replace

import pytest

from planner.search.span_places import alike_anywhere
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
