"""How many layers each stage can hold at all: a bound from its most frugal way to run them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from planner.cost.pipeline import FixedPart, PipelineProblem
from planner.cost.schedules import warm_up_passes
from planner.search.orders import forwards_before_first_backward, kept_at_first_backward
from planner.search.rows import fewest_layers, fixed_parts

Whole = NDArray[np.int64]


def fits_at_all(problem: PipelineProblem, *, any_schedule: bool = False) -> bool:
    """Whether all layers may fit: False only where no assignment does.

    With ``any_schedule`` a 1F1B problem answers for every schedule of its stages.
    """
    if problem.is_uniform:
        return most_layers(problem, any_schedule=any_schedule) is not None
    if any_schedule or problem.shape.virtual_stages > 1 or problem.shape.schedule.splits_backward:
        return _room_for_all(problem) >= 0
    return in_order(problem) is not None


def apart_may_fit(problem: PipelineProblem) -> bool:
    """Whether stages may hold the layers of the class that most are of, under schedules with split passes.

    Their first gradient finds a stage with at least so many micro-batches of each layer as there are stages
    from it on; with folded chunks, up to it: in either order 1, 2, ... p, or all micro-batches.
    """
    usual, count = Counter(problem.sequence).most_common(1)[0]
    layers, room = problem.classes[usual], max(problem.limit_bytes - problem.base_bytes, 0)
    saved = min(option.saved_bytes for option in layers.options)
    each = (
        layers.static_bytes + min(kept, problem.shape.num_micro_batches) * saved
        for kept in range(1, problem.shape.num_stages + 1)
    )
    return sum(room // held if held else count for held in each) >= count


def even_chunks_fit(problem: PipelineProblem, *, rooms_ns: Sequence[float] | None = None) -> bool:
    """Whether chunks of as many layers, or one apart, may fit: False only where no such chunks do.

    Looks at the moment of each stage's first backward pass. ``rooms_ns`` are the longest passes of counted
    layers that each stage has time for, with one micro-batch. Every chunk begins as small as it can be, at
    the place in the chain where its layers take least; what is left holds so many layers more.
    """
    shape, parts = problem.shape, fixed_parts(problem)
    places = _places(problem)
    saved, static, work = _prefixes(problem)
    working = min(option.working_bytes for layers in problem.classes for option in layers.options)
    most = 0
    for stage in range(shape.num_stages):
        own = range(shape.num_chunks)[shape.own(stage)]
        kept = kept_at_first_backward(shape, stage)
        busy = working if places[own[-1]].fewest else 0
        room = problem.limit_bytes - problem.base_bytes - max(parts[own[-1]].working_bytes, busy)
        room_ns = np.inf if rooms_ns is None else rooms_ns[stage]
        least, least_ns, further = problem.limit_bytes, np.inf, 0
        for chunk, count in zip(own, kept, strict=True):
            place, held = places[chunk], static + count * saved
            room -= parts[chunk].static_bytes + count * parts[chunk].saved_bytes
            room -= int((held[place.starts + place.fewest] - held[place.starts]).min())
            room_ns -= float((work[place.starts + place.fewest] - work[place.starts]).min())
            within = slice(int(place.starts[0]), int(place.starts[-1]) + place.most + 1)
            most += place.fewest
            if len(held[within]) > 1:
                # Otherwise it begins where the chain ends and holds nothing further.
                least = min(least, int(np.diff(held[within]).min()))
                least_ns = min(least_ns, float(np.diff(work[within]).min()))
                further += place.most - place.fewest
        if room < 0 or room_ns < 0:
            return False
        most += int(min(further, room // max(least, 1), room_ns // max(least_ns, 1.0)))
    return most >= problem.num_layers


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Where a chunk may begin in the chain, and how many layers it may hold."""

    starts: NDArray[np.int64]
    fewest: int
    most: int


def _places(problem: PipelineProblem) -> list[_Place]:
    sizes = chunk_sizes(problem)
    earliest = accumulate((low for low, _ in sizes), initial=0)
    latest = accumulate((high for _, high in sizes), initial=0)
    return [
        _Place(
            starts=np.arange(first, max(min(last, problem.num_layers - low), first) + 1),
            fewest=low,
            most=high,
        )
        for (low, high), first, last in zip(sizes, earliest, latest, strict=False)
    ]


def chunk_sizes(problem: PipelineProblem) -> list[tuple[int, int]]:
    """Return the fewest and most layers of each of several chunks; those of the ends may be fewer."""
    total, count = problem.num_layers, problem.shape.num_chunks
    most, fewest = -(-total // max(count - 2, 1)), fewest_layers(problem)
    inner = [(max(total // count, fewest[chunk]), most) for chunk in range(1, count - 1)]
    return [(fewest[0], most), *inner, (fewest[-1], most)]


def _prefixes(problem: PipelineProblem) -> tuple[Whole, Whole, Whole]:
    """Return least saved bytes, static bytes and least passes of the first 0, 1, 2, ... layers."""
    figures = [
        [min(option.saved_bytes for option in layers.options) for layers in problem.classes],
        [layers.static_bytes for layers in problem.classes],
        [min(o.forward_ns + o.backward_ns for o in layers.options) for layers in problem.classes],
    ]
    of_layers = np.array(figures, dtype=np.int64)[:, list(problem.sequence)]
    saved, static, work = np.concatenate((np.zeros((3, 1), dtype=np.int64), of_layers.cumsum(axis=1)), axis=1)
    return saved, static, work


def in_order(problem: PipelineProblem, *, rooms_ns: Sequence[float] | None = None) -> list[int] | None:
    """Return how many layers each stage of one chunk holds when stages are filled in turn; None if not all.

    A stage that holds some consecutive layers can hold fewer of them, so this finds a way where there is
    one, with each layer run its most frugal way, and its quickest. ``rooms_ns`` are the longest passes of
    counted layers that each stage has time for, with one micro-batch.
    """
    counts: list[int] = []
    parts, fewest = fixed_parts(problem), fewest_layers(problem)
    quickest = [min(o.forward_ns + o.backward_ns for o in layers.options) for layers in problem.classes]
    start = 0
    for stage, part in enumerate(parts):
        kept = forwards_before_first_backward(problem.shape, stage)
        room = problem.limit_bytes - problem.base_bytes - part.static_bytes - kept * part.saved_bytes
        last = problem.num_layers - sum(fewest[stage + 1 :])
        count, busy = 0, part.working_bytes
        room_ns = float("inf") if rooms_ns is None else rooms_ns[stage]
        if room < busy or room_ns < 0:
            return None
        while start + count < last:
            saved, working, static = _least_bytes(problem, problem.sequence[start + count], kept)
            busy = max(busy, working)
            room -= static + saved
            room_ns -= quickest[problem.sequence[start + count]]
            if room < busy or room_ns < 0:
                break
            count += 1
        if count < fewest[stage]:
            return None
        counts.append(count)
        start += count
    return counts if start == problem.num_layers else None


def _least_bytes(problem: PipelineProblem, number: int, kept: int) -> tuple[int, int, int]:
    """Return the least saved (for so many micro-batches), working and static bytes of a layer of a class."""
    layers = problem.classes[number]
    saved = min(option.saved_bytes for option in layers.options)
    return kept * saved, min(option.working_bytes for option in layers.options), layers.static_bytes


def _room_for_all(problem: PipelineProblem) -> int:
    """Return what all stages together have left when every layer is kept for one micro-batch only."""
    free = sum(
        problem.limit_bytes - problem.base_bytes - sum(part.static_bytes for part in own)
        for own in _stage_parts(problem)
    )
    return free - sum(sum(_least_bytes(problem, number, 1)[::2]) for number in problem.sequence)


def _stage_parts(problem: PipelineProblem) -> list[list[FixedPart]]:
    parts, stages = fixed_parts(problem), problem.shape.num_stages
    return [parts[problem.shape.own(stage)] for stage in range(stages)]


def most_layers(problem: PipelineProblem, *, any_schedule: bool = False) -> list[int] | None:
    """Return a bound on the layers of each stage, None when a stage or all of them hold too few.

    Looks at the moment of a stage's first backward pass alone. With one chunk per stage the bound
    is exact; with several, layers are placed where the fewest micro-batches are kept. With
    ``any_schedule`` a 1F1B problem bounds every schedule of its stages: none keeps fewer.
    """
    if problem.shape.virtual_stages == 1 and not problem.shape.schedule.splits_backward:
        stages = _single_chunks(problem, loose=any_schedule)
    else:
        stages = _several_chunks(problem)
    found: list[int] = []
    for most in stages:
        if most < 0:
            return None
        found.append(most)
    return found if sum(found) >= problem.num_layers else None


def _single_chunks(problem: PipelineProblem, *, loose: bool) -> Iterator[int]:
    """Yield the most layers of each stage of one chunk, -1 where not even the fewest fit."""
    m, total = problem.shape.num_micro_batches, problem.num_layers
    frugal = _frugal(problem) if loose else [(o.saved_bytes, o.working_bytes) for o in problem.options]
    parts, fewest = fixed_parts(problem), fewest_layers(problem)
    for stage, (part, least) in enumerate(zip(parts, fewest, strict=True)):
        kept = min(warm_up_passes(problem.shape, stage) + 1, m)
        room = problem.limit_bytes - problem.base_bytes - part.static_bytes - kept * part.saved_bytes
        most = 0 if least == 0 and room >= part.working_bytes else -1
        for saved, working in frugal:
            # Where a stage may have more chunks, the one under way may hold no layer.
            busy = part.working_bytes if loose and least == 0 else max(part.working_bytes, working)
            each = problem.static_bytes + kept * saved
            count = total if not each else min((room - busy) // each, total)
            if room >= busy and count >= least:
                most = max(most, count)
        yield most


def _frugal(problem: PipelineProblem) -> list[tuple[int, int]]:
    """Return saved and working bytes that no mix of options over several chunks undercuts."""
    saved = min(option.saved_bytes for option in problem.options)
    return [(saved, min(option.working_bytes for option in problem.options))]


def _several_chunks(problem: PipelineProblem) -> Iterator[int]:
    """Yield a bound on the layers of each stage of several chunks, -1 where not even the fewest fit.

    Also of one chunk whose gradients of weights come later.
    """
    parts, fewest, p = fixed_parts(problem), fewest_layers(problem), problem.shape.num_stages
    ((saved, working),) = _frugal(problem)
    for stage in range(p):
        kept, chunks = kept_at_first_backward(problem.shape, stage), problem.shape.own(stage)
        own, least = parts[chunks], fewest[chunks]
        busy = max(own[-1].working_bytes, working) if least[-1] else own[-1].working_bytes
        room = problem.limit_bytes - problem.base_bytes - busy - _held(problem, own, least, kept, saved)
        each = problem.static_bytes + min(kept) * saved
        spare = room // each if each else problem.num_layers
        yield min(sum(least) + spare, problem.num_layers) if room >= 0 else -1


def _held(
    problem: PipelineProblem, own: list[FixedPart], fewest: list[int], kept: list[int], saved_bytes: int
) -> int:
    """Return what a stage's fixed parts and fewest layers hold besides working memory."""
    static = sum(part.static_bytes for part in own) + sum(fewest) * problem.static_bytes
    return static + sum(
        count * (part.saved_bytes + layers * saved_bytes)
        for part, layers, count in zip(own, fewest, kept, strict=True)
    )
