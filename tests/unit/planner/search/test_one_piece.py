"""Larger layouts than trying everything can reach: the search equals one program in one piece."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings

from planner.cost.pipeline import FixedPart, LayerClass, LayerOption, PipelineProblem
from planner.cost.schedules import PipelineShape
from planner.search.master import Excluded, Solution, solve
from planner.search.span_master import solve_in_order
from planner.strategy import Recompute, RecomputeMode, ScheduleName
from tests.unit.planner.cost.problems import ALTERNATING
from tests.unit.planner.search.one_piece import OnePiece
from tests.unit.planner.search.oracle import best_plan, small_mixed_problems, small_problems

one_chunk = (small_problems(schedules=ALTERNATING) | small_mixed_problems()).filter(
    lambda drawn: drawn.shape.virtual_stages == 1 and drawn.shape.schedule in ALTERNATING
)


@settings(max_examples=60)
@given(one_chunk)
def test_the_one_piece_program_equals_trying_everything(problem: PipelineProblem) -> None:
    assert OnePiece(problem).solve() == best_plan(problem).makespan_ns


# Counting covered lines would double its time; what it reaches has tests of its own.
@pytest.mark.no_cover
@pytest.mark.parametrize("number", range(50))
def test_a_larger_layout_is_solved_as_in_one_piece(number: int) -> None:
    problem = larger_problem(number)
    expected = OnePiece(problem).solve()
    solved = (solve if problem.is_uniform else solve_in_order)(problem)
    if expected is None:
        assert solved == Excluded(lower_bound_ns=None)
    else:
        assert isinstance(solved, Solution)
        assert solved.makespan_ns == solved.lower_bound_ns == expected


def larger_problem(number: int) -> PipelineProblem:
    """Return the layout of a number: several stages, a dozen layers or two, memory that may bind."""
    random = Random(number)  # noqa: S311 - the same every time, and no secret
    stages = random.choice([3, 4, 5, 6])
    schedule = random.choice([ScheduleName.ONE_FORWARD_ONE_BACKWARD] * 3 + [ScheduleName.GPIPE])
    is_mixed = random.random() < 0.3
    num_layers = random.randint(10, 14) if is_mixed else random.randint(12, 22)
    classes = tuple(layer_class(random, options=random.choice([1, 2, 3])) for _ in range(1 + is_mixed))
    if is_mixed:
        fewest = min(len(layers.options) for layers in classes)
        classes = tuple(replace(layers, options=layers.options[:fewest]) for layers in classes)
    every = FixedPart(forward_ns=random.randint(0, 3), backward_ns=random.randint(0, 3))
    return PipelineProblem(
        shape=PipelineShape(
            schedule=schedule,
            num_stages=stages,
            virtual_stages=1,
            # In one piece every pass counts: the more stages, the fewer.
            num_micro_batches=random.choice([2, 4, 12 if stages == 3 else 8 if stages == 4 else 6]),
        ),
        classes=classes,
        sequence=tuple(random.randrange(len(classes)) for _ in range(num_layers)),
        every=every,
        first=end_of_chain(random),
        last=end_of_chain(random),
        transfer_ns=random.randint(0, 30),
        transfer_blocks=random.random() < 0.5,
        gather_overlaps=random.random() < 0.5,
        reduce_overlaps=random.random() < 0.5,
        gather_bucket_ns=random.randint(0, 20),
        reduce_bucket_ns=random.randint(0, 20),
        barrier_ns=random.randint(0, 50),
        tied_ns=random.choice([0, 40]),
        base_bytes=random.randint(0, 100),
        limit_bytes=random.randint(900, 4000) * random.choice([1, 1, 3]),
        empty_ends=random.random() < 0.5,
    )


def layer_class(random: Random, *, options: int) -> LayerClass:
    """Return a layer that is run as it is, or recomputed in part or whole: slower and more frugal."""
    forward, backward = random.randint(40, 120), random.randint(80, 240)
    saved = random.randint(40, 120)
    modes = [
        (RecomputeMode.NONE, 0.0, 1.0),
        (RecomputeMode.SELECTIVE, 0.2, 0.5),
        (RecomputeMode.FULL, 1.0, 0.1),
    ]
    return LayerClass(
        options=tuple(
            LayerOption(
                recompute=Recompute(mode=mode),
                forward_ns=forward,
                backward_ns=backward + round(again * forward),
                saved_bytes=round(keeps * saved),
                working_bytes=round(saved * (2 - keeps)),
            )
            for mode, again, keeps in modes[:options]
        ),
        static_bytes=random.randint(50, 150),
        optimizer_ns=random.randint(5, 40),
        gather_ns=random.choice([0, random.randint(5, 60)]),
        reduce_ns=random.choice([0, random.randint(5, 90)]),
    )


def end_of_chain(random: Random) -> FixedPart:
    """Return an embedding or a head: of less work than a layer, or of more."""
    return FixedPart(
        forward_ns=random.randint(0, 200),
        backward_ns=random.randint(0, 400),
        saved_bytes=random.randint(0, 60),
        working_bytes=random.randint(0, 200),
        static_bytes=random.randint(0, 300),
        optimizer_ns=random.randint(0, 60),
        gather_ns=random.choice([0, 50]),
        reduce_ns=random.choice([0, 70]),
    )
