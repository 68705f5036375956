"""The replay equals a longest path computed another way, and obeys its laws."""

from dataclasses import replace
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from planner.cost.pipeline import ChunkCosts, FixedPart, LayerOption, PipelineProblem, chunk_costs
from planner.cost.replay import replay
from planner.cost.schedules import PipelineShape, stage_orders
from planner.strategy import Recompute, ScheduleName
from tests.unit.planner.cost.problems import assignments, problems


def longest_path_ns(problem: PipelineProblem, costs: tuple[ChunkCosts, ...]) -> int:
    """Compute the makespan by plain recursion over the graph of the replay's description."""
    p, chunks = problem.shape.num_stages, len(costs)
    orders = stage_orders(problem.shape)

    def transfer(chunk: int, target: int) -> int:
        return problem.transfer_ns if 0 <= target < chunks and p > 1 else 0

    def work(chunk: int, backward: bool) -> int:  # noqa: FBT001
        base = costs[chunk].backward_ns if backward else costs[chunk].forward_ns
        sent = transfer(chunk, chunk - 1 if backward else chunk + 1)
        return base + (sent if problem.transfer_blocks else 0)

    def updated(stage: int) -> int:
        return problem.barrier_ns + sum(costs[c].optimizer_ns for c in range(stage, chunks, p))

    def gathered(chunk: int) -> int:
        return updated(chunk % p) + sum(costs[c].gather_ns for c in range(chunk % p, chunk + 1, p))

    @cache
    def end(stage: int, position: int) -> int:
        step = orders[stage][position]
        if position:
            start = end(stage, position - 1)
        elif problem.gather_overlaps:
            start = updated(stage)
        else:
            start = gathered(chunks - p + stage)
        source = step.chunk + (1 if step.backward else -1)
        if 0 <= source < chunks:
            feeding = [
                i
                for i, other in enumerate(orders[source % p])
                if (other.backward, other.chunk, other.micro_batch)
                == (step.backward, source, step.micro_batch)
            ]
            flight = 0 if problem.transfer_blocks else transfer(source, step.chunk)
            start = max(start, end(source % p, feeding[0]) + flight)
        finish = start + work(step.chunk, step.backward)
        first_use = not step.backward and step.micro_batch == 0
        if first_use and problem.gather_overlaps and costs[step.chunk].gather_ns:
            finish = max(finish, gathered(step.chunk) + problem.gather_bucket_ns)
        return finish

    def stage_end(stage: int) -> int:
        passes = len(orders[stage])
        finish = end(stage, passes - 1)
        reduced = 0 if problem.reduce_overlaps else finish
        for position in range(passes):
            step = orders[stage][position]
            cost = costs[step.chunk]
            if not step.backward or step.micro_batch != problem.shape.num_micro_batches - 1:
                continue
            if problem.reduce_overlaps and cost.reduce_ns:
                done = end(stage, position)
                reduced = max(reduced, done - work(step.chunk, backward=True)) + cost.reduce_ns
                reduced = max(reduced, done + problem.reduce_bucket_ns)
            else:
                reduced += cost.reduce_ns
        return max(finish, reduced)

    ends = [stage_end(stage) for stage in range(p)]
    return max(*ends, max(ends[0], ends[-1]) + problem.tied_ns)


@given(st.data())
def test_makespan_is_the_longest_path(data: st.DataObject) -> None:
    problem = data.draw(problems())
    costs = chunk_costs(problem, data.draw(assignments(problem)))
    assert replay(problem, costs).makespan_ns == longest_path_ns(problem, costs)


@given(st.data())
def test_a_slower_chunk_never_makes_a_step_faster(data: st.DataObject) -> None:
    problem = data.draw(problems())
    costs = list(chunk_costs(problem, data.draw(assignments(problem))))
    before = replay(problem, costs).makespan_ns
    slow = data.draw(st.integers(0, len(costs) - 1))
    field = data.draw(st.sampled_from(["forward_ns", "backward_ns", "optimizer_ns", "reduce_ns"]))
    costs[slow] = replace(costs[slow], **{field: getattr(costs[slow], field) + data.draw(st.integers(1, 50))})
    assert replay(problem, costs).makespan_ns >= before


def even_problem(*, stages: int, virtual_stages: int, micro_batches: int) -> PipelineProblem:
    """Return equal chunks of forward 2 and backward 4 and nothing else."""
    name = ScheduleName.INTERLEAVED if virtual_stages > 1 else ScheduleName.ONE_FORWARD_ONE_BACKWARD
    shape = PipelineShape(
        schedule=name, num_stages=stages, virtual_stages=virtual_stages, num_micro_batches=micro_batches
    )
    option = LayerOption(recompute=Recompute(), forward_ns=2, backward_ns=4, saved_bytes=1, working_bytes=0)
    return PipelineProblem(
        shape=shape,
        num_layers=stages * virtual_stages,
        options=(option,),
        static_bytes=0,
        optimizer_ns=0,
        gather_ns=0,
        reduce_ns=0,
        every=FixedPart(),
        first=FixedPart(),
        last=FixedPart(),
        transfer_ns=0,
        transfer_blocks=False,
        gather_overlaps=True,
        reduce_overlaps=True,
        gather_bucket_ns=0,
        reduce_bucket_ns=0,
        barrier_ns=0,
        tied_ns=0,
        base_bytes=0,
        limit_bytes=1 << 40,
        empty_ends=False,
    )


def test_equal_stages_take_the_textbook_time() -> None:
    """(m + p - 1)(f + b) with 1F1B, (v m + p - 1)(f + b) per chunk when interleaved."""
    for stages, virtual, micro_batches in [(4, 1, 8), (1, 1, 5), (8, 1, 8), (4, 3, 8), (2, 4, 6)]:
        problem = even_problem(stages=stages, virtual_stages=virtual, micro_batches=micro_batches)
        costs = chunk_costs(problem, ((1,),) * problem.shape.num_chunks)
        assert replay(problem, costs).makespan_ns == 6 * (virtual * micro_batches + stages - 1)
