"""How many layers each stage can hold at all: a bound from its most frugal way to run them."""

from dataclasses import replace

from planner.cost.pipeline import FixedPart, LayerOption, PipelineProblem
from planner.search.orders import forwards_before_first_backward, forwards_by_turn
from planner.search.rows import fewest_layers, fixed_parts


def most_layers(problem: PipelineProblem, *, any_schedule: bool = False) -> list[int] | None:
    """Return a bound on the layers of each stage, None when a stage or all of them hold too few.

    Looks at the moment of a stage's first backward pass alone. With one chunk per stage the bound
    is exact; with several, layers are placed where the fewest micro-batches are kept. With
    ``any_schedule`` a 1F1B problem bounds every schedule of its stages: none keeps fewer.
    """
    fixed, fewest = fixed_parts(problem), fewest_layers(problem)
    p = problem.shape.num_stages
    found: list[int] = []
    for stage in range(p):
        least = sum(fewest[stage::p])
        most = _most_on_stage(problem, stage, fixed[stage::p], fewest[stage::p], loose=any_schedule)
        if most < least:
            return None
        found.append(most)
    return found if sum(found) >= problem.num_layers else None


def _most_on_stage(
    problem: PipelineProblem, stage: int, fixed: list[FixedPart], fewest: list[int], *, loose: bool
) -> int:
    kept = forwards_by_turn(problem.shape, forwards_before_first_backward(problem.shape, stage))
    room = problem.limit_bytes - problem.base_bytes - fixed[-1].working_bytes
    for part, count in zip(fixed, kept, strict=True):
        room -= part.static_bytes + count * part.saved_bytes
    one_chunk = len(fixed) == 1 and not loose
    options = list(problem.options) if one_chunk else [_frugal_mix(problem)]
    most = -1
    for option in options:
        # An empty chunk under way needs no working memory for layers, whatever other chunks hold.
        spared = fewest[-1] == 0 and not one_chunk
        extra = 0 if spared else max(option.working_bytes - fixed[-1].working_bytes, 0)
        most = max(most, _most_of(problem, option.saved_bytes, room - extra, kept, fewest))
    return max(most, 0) if one_chunk and fewest == [0] and room >= 0 else most


def _frugal_mix(problem: PipelineProblem) -> LayerOption:
    """Return an option that no mix of options over several chunks undercuts in any size."""
    return replace(
        problem.options[0],
        saved_bytes=min(option.saved_bytes for option in problem.options),
        working_bytes=min(option.working_bytes for option in problem.options),
    )


def _most_of(
    problem: PipelineProblem, saved_bytes: int, room: int, kept: list[int], fewest: list[int]
) -> int:
    """Return the most layers of one option in so much room, -1 when not even the fewest fit."""
    for layers, count in zip(fewest, kept, strict=True):
        room -= layers * (problem.static_bytes + count * saved_bytes)
    if room < 0:
        return -1
    each = problem.static_bytes + min(kept) * saved_bytes
    return min(sum(fewest) + room // each, problem.num_layers) if each else problem.num_layers
