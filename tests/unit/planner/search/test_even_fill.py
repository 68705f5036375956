"""What filling rules out of even assignments is never as quick as the best of them."""

from hypothesis import HealthCheck, assume, given, settings

from planner.cost.pipeline import FixedPart, LayerClass, LayerOption, PipelineProblem, chunk_costs
from planner.cost.schedules import PipelineShape
from planner.search.bounds import lower_bound_ns, rules_out
from planner.search.capacity import most_layers
from planner.search.even_fill import EvenFill, even_ranges, rules_out_evenly
from planner.strategy import Recompute, ScheduleName
from tests.unit.planner.cost.problems import problems
from tests.unit.planner.cost.test_replay import longest_path_ns
from tests.unit.planner.search.enumeration import every_even_split
from tests.unit.planner.search.test_point_master import best_even_split_ns

interleaved = problems(
    max_stages=3, max_layers=7, max_options=2, schedules=(ScheduleName.INTERLEAVED,)
).filter(lambda problem: problem.shape.virtual_stages > 1)


@settings(max_examples=50, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(problem=interleaved)
def test_no_even_split_that_is_as_quick_is_ruled_out(problem: PipelineProblem) -> None:
    best = best_even_split_ns(problem)
    assume(best is not None)
    assert best is not None
    assert not rules_out_evenly(problem, best)
    bound = lower_bound_ns(problem)
    assert bound is not None
    least = EvenFill(problem).least_ns(bound)
    assert least is not None
    assert bound <= least <= best
    capacity = most_layers(problem)
    assert capacity is not None
    box = even_ranges(problem, best, capacity)
    assert box is not None
    for assignment in every_even_split(problem):
        if longest_path_ns(problem, chunk_costs(problem, assignment)) == best:
            held = [
                sum(sum(assignment[chunk]) for chunk in problem.shape.chunks_of(stage))
                for stage in range(problem.shape.num_stages)
            ]
            assert all(low <= count for low, count in zip(box.low.tolist(), held, strict=True))


def test_it_sees_what_stages_wait_for() -> None:
    # 2 chunks of 4 layers on each of 4 stages: the last stage waits for 12 layers, and never for 3 alone.
    problem = even_problem()
    even = longest_path_ns(problem, chunk_costs(problem, ((4,),) * 8))
    assert even == (16 * 8 + 12) * 3
    assert rules_out_evenly(problem, even - 1)
    assert not rules_out(problem, even - 1)
    bound = lower_bound_ns(problem)
    assert bound is not None
    least = EvenFill(problem).least_ns(bound)
    assert least is not None
    assert max(bound, even * 0.99) < least <= even


def even_problem() -> PipelineProblem:
    """Return a chain of equal layers alone, with much room."""
    option = LayerOption(recompute=Recompute(), forward_ns=1, backward_ns=2, saved_bytes=0, working_bytes=0)
    return PipelineProblem(
        shape=PipelineShape(
            schedule=ScheduleName.INTERLEAVED, num_stages=4, virtual_stages=2, num_micro_batches=16
        ),
        classes=(LayerClass(options=(option,), static_bytes=0, optimizer_ns=0, gather_ns=0, reduce_ns=0),),
        sequence=(0,) * 32,
        every=FixedPart(),
        first=FixedPart(),
        last=FixedPart(),
        transfer_ns=0,
        transfer_blocks=False,
        gather_overlaps=False,
        reduce_overlaps=False,
        gather_bucket_ns=0,
        reduce_bucket_ns=0,
        barrier_ns=0,
        tied_ns=0,
        base_bytes=0,
        limit_bytes=1,
        empty_ends=False,
    )
