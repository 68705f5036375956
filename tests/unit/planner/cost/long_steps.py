"""Random problems of many micro-batches, so that the middle of a step repeats."""

from dataclasses import replace

from hypothesis import strategies as st

from planner.cost.pipeline import PipelineProblem
from planner.cost.schedules import PipelineShape
from planner.strategy import ScheduleName
from tests.unit.planner.cost.problems import APART, problems, shapes_apart

MOST_GROUPS = 20
"""Groups of micro-batches through one chunk of an interleaved schedule."""


@st.composite
def long_shapes(draw: st.DrawFn, shape: PipelineShape) -> PipelineShape:
    """Draw a longer step of the same pipeline: with larger groups too, and with a smaller last one."""
    if shape.schedule in APART:
        many = draw(st.integers(1, 60))
        return draw(shapes_apart(shape.schedule, stages=shape.num_stages, micro_batches=many))
    if shape.schedule is not ScheduleName.INTERLEAVED:
        return replace(shape, num_micro_batches=draw(st.integers(1, 60)))
    size = shape.num_stages + draw(st.integers(0, 2))
    # A last group of fewer micro-batches than stages may wait for ever.
    last = draw(st.sampled_from([0, *range(shape.num_stages, size)]))
    return replace(shape, num_micro_batches=draw(st.integers(1, MOST_GROUPS)) * size + last, group_size=size)


@st.composite
def long_problems(draw: st.DrawFn) -> PipelineProblem:
    """Draw a problem of up to five stages and some dozens of micro-batches."""
    problem = draw(problems(max_stages=5))
    return replace(problem, shape=draw(long_shapes(problem.shape)))
