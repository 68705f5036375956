"""What memory is said to make layers take is never more than any way to run them takes."""

import numpy as np
from hypothesis import HealthCheck, given, settings

from planner.cost.pipeline import PipelineProblem
from planner.search.forced import forced_by_layers
from planner.search.stage_points import StagePoint, StagePoints
from tests.unit.planner.cost.problems import problems

equal_layers = problems(max_stages=3, max_layers=8, max_options=3).filter(
    lambda problem: problem.is_uniform and problem.shape.virtual_stages > 1
)


def beyond_quickest_ns(problem: PipelineProblem, point: StagePoint) -> int:
    """Return what the passes of a point's layers take beyond those of as many in their quickest way."""
    each = [option.forward_ns + option.backward_ns for option in problem.options]
    by_option = np.array(point.counts).sum(axis=0)
    return int(by_option @ (np.array(each) - min(each)))


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(problem=equal_layers)
def test_no_point_of_a_stage_takes_less_than_its_memory_forces(problem: PipelineProblem) -> None:
    points = StagePoints(problem)
    for stage in range(problem.shape.num_stages):
        fewest = sum(problem.minimum_layers(chunk) for chunk in problem.shape.chunks_of(stage))
        for count in range(fewest, problem.num_layers + 1):
            layers = np.array([points.spread(stage, count)], dtype=np.int64)
            forced, fits = forced_by_layers(problem, stage, layers)
            found = points.of(stage, count)
            assert fits[0] or not found
            assert all(forced[0] <= beyond_quickest_ns(problem, point) for point in found)
