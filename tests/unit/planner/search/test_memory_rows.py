"""A stage's memory rows give the peak that its passes give, followed one by one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.pipeline import chunk_costs, stage_peak_bytes
from planner.search.memory_rows import memory_rows
from tests.unit.planner.cost.problems import assignments, problems


@settings(max_examples=400)
@given(st.data())
def test_rows_give_the_peak_of_every_stage(data: st.DataObject) -> None:
    problem = data.draw(problems())
    assignment = data.draw(assignments(problem))
    stage = data.draw(st.integers(0, problem.shape.num_stages - 1))
    own = assignment[problem.shape.own(stage)]
    options = problem.options
    saved = [sum(n * option.saved_bytes for n, option in zip(counts, options, strict=True)) for counts in own]
    working = [
        max(option.working_bytes for n, option in zip(counts, options, strict=True) if n) for counts in own
    ]
    held = [sum(n * option.held_bytes for n, option in zip(counts, options, strict=True)) for counts in own]
    peak = memory_rows(problem, stage).peak_bytes(
        np.array(saved), np.array(working), sum(map(sum, own)) * problem.static_bytes, held=np.array(held)
    )
    assert peak == stage_peak_bytes(problem, chunk_costs(problem, assignment), stage)
