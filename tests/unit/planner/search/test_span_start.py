"""A split found by hand holds all layers, and moving one of them never makes it worse."""

from hypothesis import assume, given, settings

from planner.cost.pipeline import PipelineProblem
from planner.search.paths import stage_paths
from planner.search.span_start import SplitByHand
from planner.search.spans import PathTable, SpanFinder
from tests.unit.planner.search.test_span_master import SLOW, several_chunks


@settings(max_examples=40, suppress_health_check=SLOW)
@given(problem=several_chunks)
def test_a_split_by_hand_holds_all_layers_and_only_gets_better(problem: PipelineProblem) -> None:
    shape, finder = problem.shape, SpanFinder(problem)
    runs = [finder.runs(chunk) for chunk in range(shape.num_chunks)]
    assume(all(map(len, runs)))
    paths = PathTable.of(
        problem, [path for stage in range(shape.num_stages) for path in stage_paths(problem, stage)]
    )
    by_hand = SplitByHand(problem, finder, runs)
    sizes, before = by_hand.start(), None
    while sizes is not None:
        assert sizes.sum() == problem.num_layers
        assert all(int(size) in (own.end - own.start) for size, own in zip(sizes, runs, strict=True))
        now = by_hand.value(sizes, paths)
        assert before is None or now < before
        sizes, before = by_hand.moved(sizes, paths), now
