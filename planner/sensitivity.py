"""What a better machine, a longer sequence or one limit less would do to a plan: found by solving again.

Nothing is extrapolated: every figure is the step time of the best plan of a changed request.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from planner.cluster import NodeGroup
from planner.communication import CONSENT
from planner.cost.collective_rows import LINK_FACT
from planner.errors import InvalidRequest
from planner.explanation import change_words
from planner.growth import grown_cluster
from planner.job import Constraints
from planner.plan import Explanation, Result, Sensitivity, Status
from planner.planning import NODE_GROUP, PlanRequest, best_plan, searched_space
from planner.search.sending import waits_for_consent
from planner.units import GIBIBYTE, Seconds, format_bytes, format_seconds

Value = TypeVar("Value")

MORE_MEMORY: Final = 1.5
"""How many times its memory a device gets to see whether memory binds."""
MOVED: Final = 1e-9
"""Relative change of a step time from which the optimum has moved."""
FORBIDDEN_WORDS: Final[Mapping[str, str]] = {"sharding": "zero_stage"}
"""Techniques that are forbidden by another word than their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Change:
    """A request that differs in one thing: in words, and as JSON pointers to new values."""

    why: str
    change: Mapping[str, object]
    request: PlanRequest
    limit: str | None = None
    """What the change relieves of, where it is a limit."""


def with_sensitivity(
    request: PlanRequest, result: Result, *, explain: bool = False, sensitivity: bool = False
) -> Result:
    """Return a result with what changed requests come to, solved in what is left of the time limit.

    ``explain`` takes away what may bind, one by one, and says what that is worth; ``sensitivity`` makes
    machines and sequence larger. A result without a plan stays as it is.
    """
    if result.plan is None or result.certificate is None or not (explain or sensitivity):
        return result
    group = request.cluster.group(result.plan.stages[0].placement[0].node_group)
    changes = [
        *(_without_limits(request, group) if explain else ()),
        *(_larger(request, group) if sensitivity else ()),
    ]
    left = max(request.solver.time_limit_seconds - result.certificate.solve_seconds, 0.0)
    solved = tuple(_solved(changes, result, left_seconds=left))
    pairs = enumerate(zip(changes, solved, strict=True))
    sentences = [
        Explanation(text=text, pointer=f"/sensitivity/{number}")
        for number, (change, found) in pairs
        for text in _sentences(change, found)
    ]
    return replace(result, sensitivity=solved, explanation=(*result.explanation, *sentences))


def _solved(changes: Iterable[_Change], result: Result, *, left_seconds: Seconds) -> Iterator[Sensitivity]:
    """Yield the answers in turn, each with an equal part of the time that is left."""
    waiting = list(changes)
    while waiting:
        change, share = waiting.pop(0), left_seconds / (len(waiting) + 1)
        limits = replace(change.request.solver, time_limit_seconds=share)
        found = best_plan(replace(change.request, solver=limits))
        left_seconds -= min(found.certificate.solve_seconds if found.certificate else share, left_seconds)
        yield _compared(change, found, result)


def _compared(change: _Change, found: Result, result: Result) -> Sensitivity:
    assert result.certificate is not None
    seconds = None if found.certificate is None else found.certificate.value
    return Sensitivity(
        why=change.why,
        change=change.change,
        status=found.status,
        plan=found.plan,
        step_time_seconds=seconds,
        relative_change=None if seconds is None else seconds / result.certificate.value - 1,
        changes_plan=None if found.plan is None else found.plan != result.plan,
    )


# --- limits taken away -------------------------------------------------------------------------


def _without_limits(request: PlanRequest, group: NodeGroup) -> Iterator[_Change]:
    """Yield the request without each thing that may keep the plan from being faster."""
    memory = MORE_MEMORY * group.device.memory_bytes
    why = f"{format_bytes(memory)} of memory per device"
    yield _with_memory(request, group, memory, why=why, limit="Memory")
    constraints = request.constraints
    for word, value in constraints.fixed.items():
        if word != NODE_GROUP:
            free = replace(constraints, fixed=_without(word, constraints.fixed))
            limit = f"Keeping {word} at {getattr(value, 'mode', value)}"
            yield _left_free(request, free, word=word, change=_unfixed(request, word), limit=limit)
    for word, (low, high) in constraints.bounds.items():
        free = replace(constraints, bounds=_without(word, constraints.bounds))
        limit = f"Keeping {word} within {low:g} to {high:g}"
        yield _left_free(request, free, word=word, change={f"/constraints/bounds/{word}": None}, limit=limit)
    yield from _with_consent(request)


def _with_consent(request: PlanRequest) -> Iterator[_Change]:
    """Yield the request with less sent than the framework does by default, where it can and may not yet."""
    if waits_for_consent(searched_space(request)):
        allow = (*request.constraints.allow, CONSENT)
        yield _Change(
            why="quantized communication allowed",
            change={"/constraints/allow": list(allow)},
            request=replace(request, constraints=replace(request.constraints, allow=allow)),
            limit="What replicas send by default",
        )


def _without(word: str, limits: Mapping[str, Value]) -> dict[str, Value]:
    return {other: value for other, value in limits.items() if other != word}


def _left_free(
    request: PlanRequest, free: Constraints, *, word: str, change: Mapping[str, object], limit: str
) -> _Change:
    return _Change(
        why=f"{word} left free", change=change, request=replace(request, constraints=free), limit=limit
    )


def _unfixed(request: PlanRequest, word: str) -> dict[str, object]:
    """Return the change that no longer fixes a decision: a technique allowed, or a value taken away."""
    forbid = request.constraints.forbid
    technique = next((name for name in forbid if FORBIDDEN_WORDS.get(name, name) == word), None)
    if technique is None:
        return {f"/constraints/fixed/{word}": None}
    return {"/constraints/forbid": [name for name in forbid if name != technique]}


def _sentences(change: _Change, found: Sensitivity) -> Iterator[str]:
    """Yield what taking a limit away shows, where it was one and an answer was found."""
    if change.limit is None or found.relative_change is None or found.step_time_seconds is None:
        return
    if found.relative_change < -MOVED:
        before = found.step_time_seconds / (1 + found.relative_change)
        words = change_words(found.step_time_seconds, before)
        yield (
            f"{change.limit} binds: with {change.why} the best plan would take "
            f"{format_seconds(found.step_time_seconds)}, {words}."
        )
    elif found.status is Status.OPTIMAL:
        yield f"{change.limit} does not bind: with {change.why} no plan is faster."


# --- larger machines and sequences -------------------------------------------------------------


def _larger(request: PlanRequest, group: NodeGroup) -> Iterator[_Change]:
    """Yield the request with more of each thing that money or patience buys."""
    memory = group.device.memory_bytes + GIBIBYTE
    yield _with_memory(request, group, memory, why="One more GiB of memory per device")
    yield from _with_faster_network(request, group)
    yield from _with_more_devices(request, group)
    length = request.job.sequence_length
    if length is not None:
        yield _Change(
            why="Twice the sequence length",
            change={"/job/sequence_length": 2 * length},
            request=replace(request, job=replace(request.job, sequence_length=2 * length)),
        )


def _with_memory(
    request: PlanRequest, group: NodeGroup, memory_bytes: float, *, why: str, limit: str | None = None
) -> _Change:
    device = replace(group.device, memory_bytes=memory_bytes)
    return _Change(
        why=why,
        change={f"{_pointer(request, group)}/device/memory_bytes": memory_bytes},
        request=_with_group(request, replace(group, device=device)),
        limit=limit,
    )


def _with_faster_network(request: PlanRequest, group: NodeGroup) -> Iterator[_Change]:
    """Yield the request with twice the bandwidth between nodes; not where that very network was measured."""
    own = [profile for profile in request.profiles if profile.device == group.device.name]
    if any(profile.collectives and LINK_FACT not in profile.facts for profile in own):
        return
    outer = [number for number, level in enumerate(group.levels) if level.devices > group.devices_per_node]
    levels, change = list(group.levels), dict[str, object]()
    for number in outer:
        bandwidth = 2 * levels[number].bandwidth_bytes_per_second
        levels[number] = replace(levels[number], bandwidth_bytes_per_second=bandwidth)
        change[f"{_pointer(request, group)}/levels/{number}/bandwidth_bytes_per_second"] = bandwidth
    if change:
        yield _Change(
            why="Twice the bandwidth between nodes",
            change=change,
            request=_with_group(request, replace(group, levels=tuple(levels))),
        )


def _with_more_devices(request: PlanRequest, group: NodeGroup) -> Iterator[_Change]:
    try:
        growth = grown_cluster(request.cluster, 2, group=group.name)
    except InvalidRequest:
        # A preset that has no such number of devices.
        return
    if growth is not None:
        yield _Change(
            why="Twice the devices",
            change=growth.change,
            request=replace(request, cluster=growth.cluster),
        )


def _pointer(request: PlanRequest, group: NodeGroup) -> str:
    return f"/cluster/node_groups/{request.cluster.group_names.index(group.name)}"


def _with_group(request: PlanRequest, changed: NodeGroup) -> PlanRequest:
    groups = [changed if group.name == changed.name else group for group in request.cluster.node_groups]
    return replace(request, cluster=replace(request.cluster, node_groups=tuple(groups)))
