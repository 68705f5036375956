"""The replay equals a longest path computed another way, and obeys its laws."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.pipeline import ChunkCosts, FixedPart, LayerClass, LayerOption, PipelineProblem, chunk_costs
from planner.cost.replay import replay
from planner.cost.schedules import Pass, PassKind, PipelineShape, stage_orders
from planner.cost.steady import play_step
from planner.strategy import Recompute, ScheduleName
from tests.unit.planner.cost.problems import apart, assignments, problems


class Graph:
    """The graph of the replay's description, its ends found by plain recursion."""

    def __init__(self, problem: PipelineProblem, costs: tuple[ChunkCosts, ...]) -> None:
        self.problem, self.costs = problem, costs
        self.p, self.chunks = problem.shape.num_stages, len(costs)
        self.orders = stage_orders(problem.shape)
        self.position = {step: i for order in self.orders for i, step in enumerate(order)}
        self.end = cache(self._end)

    def transfer(self, source: int, target: int) -> int:
        if not 0 <= target < self.chunks or self.p == 1:
            return 0
        ways = self.problem.boundaries_ns or (self.problem.transfer_ns,) * self.p
        here, there = self.stage_of(source), self.stage_of(target)
        if here == there:
            return 0
        folds = self.stage_of(self.chunks - 1) == 0
        return ways[min(here, there) if folds else min(source, target) % self.p]

    def stage_of(self, chunk: int) -> int:
        return next(s for s, order in enumerate(self.orders) if any(step.chunk == chunk for step in order))

    def own(self, stage: int) -> list[int]:
        """Return the chunks of a stage in forward order."""
        return sorted({step.chunk for step in self.orders[stage]})

    def work(self, step: Pass) -> int:
        cost = self.costs[step.chunk]
        base = (
            cost.forward_ns,
            cost.backward_ns,
            cost.backward_ns - cost.weight_ns,
            cost.weight_ns,
        )[step.kind]
        if step.kind == PassKind.WEIGHT:
            return base
        sent = self.transfer(step.chunk, step.chunk - 1 if step.backward else step.chunk + 1)
        return base + (sent if self.problem.transfer_blocks else 0)

    def updated(self, stage: int) -> int:
        own = self.own(stage)
        return self.problem.barrier_ns + sum(self.costs[c].optimizer_ns for c in own)

    def gathered(self, chunk: int) -> int:
        stage = self.stage_of(chunk)
        own = [c for c in self.own(stage) if c <= chunk]
        return self.updated(stage) + sum(self.costs[c].gather_ns for c in own)

    def before(self, stage: int, position: int) -> int:
        """Return when the stage is free for a pass."""
        if position:
            return self.end(stage, position - 1)
        if self.problem.gather_overlaps:
            return self.updated(stage)
        return self.gathered(self.own(stage)[-1])

    def arrival(self, step: Pass) -> int:
        source = step.chunk + (1 if step.backward else -1)
        if not 0 <= source < self.chunks or step.kind == PassKind.WEIGHT:
            return 0
        kinds = (PassKind.BACKWARD, PassKind.INPUT) if step.backward else (PassKind.FORWARD,)
        feeding = [step._replace(chunk=source, kind=int(kind)) for kind in kinds]
        (position,) = [self.position[made] for made in feeding if made in self.position]
        flight = 0 if self.problem.transfer_blocks else self.transfer(source, step.chunk)
        return self.end(self.stage_of(source), position) + flight

    def _end(self, stage: int, position: int) -> int:
        step = self.orders[stage][position]
        finish = max(self.before(stage, position), self.arrival(step)) + self.work(step)
        first_use = step.kind == PassKind.FORWARD and step.micro_batch == 0
        if first_use and self.problem.gather_overlaps and self.costs[step.chunk].gather_ns:
            finish = max(finish, self.gathered(step.chunk) + self.problem.gather_bucket_ns)
        return finish

    def reduced(self, stage: int) -> int:
        """Return when the stage's gradients are reduced."""
        end = 0 if self.problem.reduce_overlaps else self.end(stage, len(self.orders[stage]) - 1)
        last = {step.chunk: position for position, step in enumerate(self.orders[stage])}
        for position, step in enumerate(self.orders[stage]):
            cost = self.costs[step.chunk]
            if position != last[step.chunk]:
                continue
            if self.problem.reduce_overlaps and cost.reduce_ns:
                done = self.end(stage, position)
                end = max(end, done - self.work(step)) + cost.reduce_ns
                end = max(end, done + self.problem.reduce_bucket_ns)
            else:
                end += cost.reduce_ns
        return end

    def stage_end(self, stage: int) -> int:
        return max(self.end(stage, len(self.orders[stage]) - 1), self.reduced(stage))


def longest_path_ns(problem: PipelineProblem, costs: tuple[ChunkCosts, ...]) -> int:
    """Compute the makespan by plain recursion."""
    graph = Graph(problem, costs)
    ends = [graph.stage_end(stage) for stage in range(problem.shape.num_stages)]
    return max(*ends, max(ends[0], ends[-1]) + problem.tied_ns)


@given(st.data())
def test_makespan_is_the_longest_path(data: st.DataObject) -> None:
    problem = data.draw(problems())
    costs = chunk_costs(problem, data.draw(assignments(problem)))
    assert replay(problem, costs).makespan_ns == longest_path_ns(problem, costs)


@given(st.data())
def test_makespan_is_the_longest_path_where_stages_lie_apart(data: st.DataObject) -> None:
    problem = data.draw(apart(data.draw(problems())))
    costs = chunk_costs(problem, data.draw(assignments(problem)))
    assert replay(problem, costs).makespan_ns == longest_path_ns(problem, costs)
    step = play_step(problem, costs)
    assert step.makespan_ns == step.path.length_ns(costs) == longest_path_ns(problem, costs)


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
        classes=(LayerClass(options=(option,), static_bytes=0, optimizer_ns=0, gather_ns=0, reduce_ns=0),),
        sequence=(0,) * (stages * virtual_stages),
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


def split_problem(
    name: ScheduleName, *, stages: int, micro_batches: int, passes: tuple[int, int, int]
) -> PipelineProblem:
    """Return equal chunks whose forward, input and weight gradients take so long, and nothing else."""
    forward, inputs, weights = passes
    chunks = name.fewest_chunks
    base = even_problem(stages=stages, virtual_stages=1, micro_batches=micro_batches)
    (layers,) = base.classes
    option = replace(layers.options[0], forward_ns=forward, backward_ns=inputs + weights, weight_ns=weights)
    return replace(
        base,
        shape=PipelineShape(
            schedule=name, num_stages=stages, virtual_stages=chunks, num_micro_batches=micro_batches
        ),
        classes=(replace(layers, options=(option,)),),
        sequence=(0,) * (stages * chunks),
    )


@pytest.mark.parametrize(
    ("name", "passes", "idle"),
    [
        (ScheduleName.ONE_FORWARD_ONE_BACKWARD, (1, 1, 1), 3),
        (ScheduleName.ZB_H1, (1, 1, 1), 1),
        (ScheduleName.ZB_H1, (2, 3, 2), 3),
        (ScheduleName.ZB_V, (1, 1, 1), 1),
        (ScheduleName.DUALPIPE_V, (1, 1, 1), 1),
        (ScheduleName.BREADTH_FIRST, (1, 1, 1), 3),
    ],
)
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 5), (4, 16), (6, 27)])
def test_zero_bubble_schedules_idle_as_long_as_their_papers_say(
    name: ScheduleName, passes: tuple[int, int, int], idle: int, stages: int, micro_batches: int
) -> None:
    """Per stage beside the first: 1F1B F + B + W, ZB-H1 F + B - W (Qi et al., table 1).

    ZB-V and DualPipeV wait with passes of equal length for nothing but their first input, F.
    """
    problem = split_problem(name, stages=stages, micro_batches=micro_batches, passes=passes)
    costs = chunk_costs(problem, ((1,),) * problem.shape.num_chunks)
    work = name.fewest_chunks * micro_batches * sum(passes)
    assert replay(problem, costs).makespan_ns == work + (stages - 1) * idle


def test_stages_that_wait_for_each_other_are_refused() -> None:
    """A last group of one micro-batch: stage 0 waits for an input that waits for stage 0."""
    problem = even_problem(stages=4, virtual_stages=3, micro_batches=9)
    with pytest.raises(ValueError, match="wait for each other"):
        replay(problem, chunk_costs(problem, ((1,),) * problem.shape.num_chunks))
