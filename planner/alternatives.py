"""Other plans worth knowing: ties, no pipeline, fewer devices, the framework's usual recipe.

They come from smaller searches over the same costs. Those end near enough to their best, which leaves them a
small part of the time of the search before.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, permutations
from typing import Final

from planner.communication import is_asked, own_format
from planner.cost.model import CostModel
from planner.full_plan import full_plan
from planner.job import SolverLimits
from planner.legality import Setting, divisors
from planner.plan import Alternative, Prediction
from planner.played_plan import play
from planner.prediction import predict
from planner.search.best_first import SideSearch, search
from planner.search.outcome import Candidate, SearchOutcome, simplest
from planner.search.ranking import layout_rank, num_techniques
from planner.search.sending import FORMATS
from planner.search.space import Space
from planner.strategy import Layout, RecomputeMode, TrainingPlan, ZeroStage
from planner.units import NANOSECONDS_PER_SECOND, Seconds
from planner.usual_recipe import usual_recipe
from planner.wire import WireFormat

Choice = int | RecomputeMode | WireFormat
"""What a decision is fixed to."""

MOST_TIES: Final = 3
NEAR_ENOUGH: Final = 0.02
"""Relative gap at which a smaller search may end: below what its answer is told apart by."""
TIME_SHARE: Final = 0.1
"""Share of the time limit that all smaller searches have together."""
MOST_TIME: Final[Seconds] = 10.0
"""What they have at the most, however long the search may take."""
FEW_DEVICES: Final = 64
"""Up to so many devices a search over all their meshes takes a moment."""
STAGE_DEGREES: Final = (
    "tensor_parallel",
    "context_parallel",
    "sequence_parallel",
    "expert_parallel",
    "expert_tensor_parallel",
)
"""Words that say how the devices of one replica of a stage share its layers."""
TRADED: Final = ("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel")
"""Degrees whose product is the number of devices, in the order in which one takes a factor from another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Other:
    """Another plan, and why it is worth knowing."""

    why: str
    candidate: Candidate


@dataclass(frozen=True, kw_only=True, slots=True)
class _Again:
    """Smaller searches of one space, in the time that they have together."""

    model: CostModel
    space: Space
    limits: SolverLimits
    ends_at: Seconds

    def best(
        self,
        choices: Mapping[str, Choice],
        *,
        num_devices: int | None = None,
        ceiling_ns: int | None = None,
    ) -> Candidate | None:
        """Return the best plan with some choices fixed; None where the caller rules one out or none fits.

        ``ceiling_ns``: None too where none is as fast as that.
        """
        left = self.ends_at - time.monotonic()
        if left <= 0 or not all(_is_allowed(self.space, *choice) for choice in choices.items()):
            return None
        constraints = self.space.constraints
        space = replace(
            self.space,
            constraints=replace(constraints, fixed={**constraints.fixed, **choices}),
            num_devices=num_devices or self.space.num_devices,
        )
        gap = max(self.limits.relative_gap, NEAR_ENOUGH)
        limits = SolverLimits(time_limit_seconds=left, relative_gap=gap)
        return search(space, self.model, limits, side=SideSearch(ceiling_ns=ceiling_ns, most_tries=2)).best


def _is_allowed(space: Space, word: str, value: Choice) -> bool:
    return space.allowed(word, value) if isinstance(value, int) else space.fixed(word) in {None, value}


def alternatives(
    model: CostModel,
    space: Space,
    outcome: SearchOutcome,
    *,
    prediction: Prediction,
    limits: SolverLimits,
) -> tuple[Alternative, ...]:
    """Return other plans than the best of a search, the ties inside its interval first.

    A search that was cut short has no time for further ones: it has its own next best plans alone.
    """
    best = outcome.best
    assert best is not None
    ends_at = time.monotonic() + min(TIME_SHARE * limits.time_limit_seconds, MOST_TIME)
    space = replace(space, num_devices=best.layout.mesh.world_size)
    again = _Again(model=model, space=space, limits=limits, ends_at=ends_at)
    latest_ns = int(prediction.step_time_interval_seconds[1] * NANOSECONDS_PER_SECOND)
    listed = _Listed(setting=space.setting, known=[full_plan(best.layout, best.assignment, space.setting)])
    meshes = list(_other_meshes(outcome, best, again=again, latest_ns=latest_ns))
    listed.extend(_ties(outcome, best, meshes, again=again, latest_ns=latest_ns), most=MOST_TIES)
    has_ties = bool(listed.others)
    if outcome.finished:
        listed.extend_or_name(_landmarks(again, best))
    if not has_ties:
        listed.extend(
            (_Other(why="The next best mesh that was solved", candidate=it) for it in meshes), most=1
        )
    return tuple(
        Alternative(
            why=other.why,
            plan=plan,
            prediction=predict(play(model, other.candidate.layout, other.candidate.assignment)),
        )
        for plan, other in zip(listed.known[1:], listed.others, strict=True)
    )


@dataclass(kw_only=True, slots=True)
class _Listed:
    """What is told besides the plan that was chosen, each plan once."""

    setting: Setting
    known: list[TrainingPlan]
    others: list[_Other] = field(default_factory=list)

    def extend(self, others: Iterable[_Other], *, most: int | None = None) -> None:
        """Add plans that are not known yet, up to so many."""
        end = None if most is None else len(self.others) + most
        for found in others:
            if end is not None and len(self.others) >= end:
                return
            other = replace(found, candidate=simplest(found.candidate))
            plan = self._plan(other)
            if plan not in self.known:
                self.known.append(plan)
                self.others.append(other)

    def extend_or_name(self, others: Iterable[_Other]) -> None:
        """Add plans, and say what else one is that is listed already."""
        for other in others:
            if self._plan(other) in self.known[1:]:
                number = self.known.index(self._plan(other)) - 1
                why = f"{self.others[number].why}; {other.why[0].lower()}{other.why[1:]}"
                self.others[number] = replace(self.others[number], why=why)
            else:
                self.extend([other])

    def _plan(self, other: _Other) -> TrainingPlan:
        return full_plan(other.candidate.layout, other.candidate.assignment, self.setting)


def _ties(
    outcome: SearchOutcome, best: Candidate, meshes: Iterable[Candidate], *, again: _Again, latest_ns: int
) -> list[_Other]:
    """Return plans whose difference drowns in the interval of the best, the simplest first."""
    simpler = _simpler(again, best, latest_ns=latest_ns) if outcome.finished else ()
    others = (_Other(why="Within the interval: another mesh", candidate=candidate) for candidate in meshes)
    inside = [other for other in (*simpler, *others) if other.candidate.makespan_ns <= latest_ns]
    return sorted(inside, key=lambda other: layout_rank(other.candidate.layout))


def _other_meshes(
    outcome: SearchOutcome, best: Candidate, *, again: _Again, latest_ns: int
) -> Iterator[Candidate]:
    """Yield the best plan that the search found on each other mesh, fastest first.

    A search whose bounds rule out all others has found none: then one of the meshes next to the best, where
    any is as fast as that.
    """
    seen = {best.layout.mesh}
    for candidate in sorted(outcome.runners_up, key=lambda candidate: candidate.rank):
        if candidate.layout.mesh not in seen:
            seen.add(candidate.layout.mesh)
            yield candidate
    if len(seen) == 1 and outcome.finished:
        yield from islice(_next_to(best, again, latest_ns=latest_ns), 1)


def _next_to(best: Candidate, again: _Again, *, latest_ns: int) -> Iterator[Candidate]:
    """Yield the best plan on each mesh in which one degree has given its smallest factor to another."""
    for taker, giver in permutations(TRADED, 2):
        degrees = {word: getattr(best.layout.mesh, word) for word in TRADED}
        if degrees[giver] > 1:
            factor = divisors(degrees[giver])[1]
            degrees |= {giver: degrees[giver] // factor, taker: degrees[taker] * factor}
            found = again.best(degrees, ceiling_ns=latest_ns)
            if found is not None:
                yield found


def _simpler(again: _Again, best: Candidate, *, latest_ns: int) -> Iterator[_Other]:
    """Yield the best plan without each technique that a plan uses, cut into the same stages otherwise.

    One that needs another technique in its place is not simpler.
    """
    kept = _stage_degrees(best.layout) | _pipeline(best.layout)
    for technique, without in (*_used(best.layout), *_sent(best.layout, again.space.setting)):
        candidate = again.best({**kept, **without}, ceiling_ns=latest_ns)
        if candidate is not None and num_techniques(candidate.layout) < num_techniques(best.layout):
            yield _Other(why=f"Within the interval, and simpler: no {technique}", candidate=candidate)


def _used(layout: Layout) -> Iterator[tuple[str, dict[str, Choice]]]:
    """Yield every technique of a layout but its pipeline, and the choices that do without it."""
    mesh = layout.mesh
    if mesh.tensor_parallel > 1:
        yield "tensor parallelism", {"tensor_parallel": 1, "sequence_parallel": False}
    if mesh.sequence_parallel:
        yield "sequence parallelism", {"sequence_parallel": False}
    if mesh.context_parallel > 1:
        yield "context parallelism", {"context_parallel": 1}
    if mesh.expert_parallel > 1:
        yield "expert parallelism", {"expert_parallel": 1}
    if layout.schedule.virtual_stages > 1:
        yield "interleaving", {"virtual_stages": 1}
    if layout.sharding.zero_stage > ZeroStage.NONE:
        yield "sharded states", {"zero_stage": 0}
    if any(option.mode is not RecomputeMode.NONE for option in layout.recompute):
        yield "recomputation", {"recompute": RecomputeMode.NONE}


def _sent(layout: Layout, setting: Setting) -> Iterator[tuple[str, dict[str, Choice]]]:
    """Yield that replicas send what the framework does not by default, and the formats that it does."""
    if any(is_asked(setting, layout.sharding, word) for word in FORMATS):
        yield "quantized communication", {word: own_format(setting, word) for word in FORMATS}


def _stage_degrees(layout: Layout) -> dict[str, Choice]:
    return {word: getattr(layout.mesh, word) for word in STAGE_DEGREES}


def _pipeline(layout: Layout) -> dict[str, Choice]:
    return {
        "pipeline_parallel": layout.mesh.pipeline_parallel,
        "virtual_stages": layout.schedule.virtual_stages,
    }


def _landmarks(again: _Again, best: Candidate) -> Iterator[_Other]:
    """Yield plans that people compare with: no pipeline, usual numerics, fewer devices, the usual recipe."""
    flat = again.best({"pipeline_parallel": 1}) if best.layout.mesh.pipeline_parallel > 1 else None
    if flat is not None:
        yield _Other(why="Without a pipeline", candidate=flat)
    yield from _sent_as_usual(again, best)
    yield from _on_fewer_devices(again, best)
    recipe = usual_recipe(again.space, again.model)
    if recipe is not None:
        framework = again.space.setting.framework.name
        yield _Other(why=f"The usual recipe of {framework}", candidate=recipe)


def _sent_as_usual(again: _Again, best: Candidate) -> Iterator[_Other]:
    """Yield the best plan whose replicas send what the framework does by default, where the best's do not."""
    for technique, usual in _sent(best.layout, again.space.setting):
        found = again.best(usual)
        if found is not None:
            yield _Other(why=f"Without {technique}", candidate=found)


def _on_fewer_devices(again: _Again, best: Candidate) -> Iterator[_Other]:
    """Yield the best plan on half the devices, or on the largest share of them that leaves none idle.

    Stages and the cut of layers are those of the best plan where one such fits, then the cut alone; where
    devices are few, any plan will do after that.
    """
    devices = again.space.num_devices
    fewer = divisors(devices)[:-1]
    if not fewer:
        return
    why, cut = f"On {fewer[-1]} of the {devices} devices", _stage_degrees(best.layout)
    kept = {f"{why}, in the same stages": cut | _pipeline(best.layout), f"{why}, layers cut alike": cut}
    anyhow: dict[str, dict[str, Choice]] = {why: {}} if devices <= FEW_DEVICES else {}
    for words, choices in (kept | anyhow).items():
        found = again.best(choices, num_devices=fewer[-1])
        if found is not None:
            yield _Other(why=words, candidate=found)
            return
