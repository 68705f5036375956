"""The use cases, top to bottom: plan a training job, evaluate a plan that the caller fixes."""

from collections.abc import Callable
from dataclasses import dataclass

from planner.cluster import Cluster
from planner.cost.model import CostModel
from planner.errors import InvalidRequest
from planner.expansion import FixedPlan, expand_short_plan, full_plan, read_full_plan
from planner.explanation import memory_warnings
from planner.frameworks import framework_by_name
from planner.job import Constraints, Job, SolverLimits
from planner.legality import Setting, layout_violations
from planner.plan import Result, Status, TimelineEvent, UsedProfile
from planner.prediction import play, predict, timeline
from planner.profile import Profile
from planner.strategy import ShortPlan, TrainingPlan, Violation
from planner.units import Seconds
from planner.workload.layers import Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """What to train on which machines, and which measurements may be used."""

    workload: Workload
    cluster: Cluster
    job: Job
    constraints: Constraints
    solver: SolverLimits
    profiles: tuple[Profile, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a search has come."""

    best_seconds: Seconds | None
    lower_bound_seconds: Seconds
    meshes_left: int
    meshes_total: int


def plan_training(request: PlanRequest, *, progress: Callable[[Progress], None] | None = None) -> Result:
    """Return the plan that no plan of the described space beats, with its proof.

    Raises InvalidRequest for fixed choices that nothing can satisfy.
    """
    raise NotImplementedError


def evaluate_plan(request: PlanRequest, plan: TrainingPlan | ShortPlan) -> Result:
    """Return the prediction for a plan that the caller fixes; an illegal one gets its violations."""
    setting = _setting(request)
    fixed = expand_short_plan(plan, setting) if isinstance(plan, ShortPlan) else read_full_plan(plan, setting)
    violations = _violations(setting, fixed)
    profiles = _used_profiles(request)
    if violations or fixed.assignment is None:
        return Result(status=Status.ILLEGAL, violations=violations, profiles=profiles)
    played = play(_cost_model(request, setting), fixed.layout, fixed.assignment)
    prediction = predict(played)
    return Result(
        status=Status.FITS if prediction.fits else Status.DOES_NOT_FIT,
        profiles=profiles,
        plan=full_plan(fixed.layout, fixed.assignment, setting),
        prediction=prediction,
        warnings=memory_warnings(prediction, memory_fraction=request.constraints.memory_fraction),
    )


def plan_timeline(request: PlanRequest, plan: TrainingPlan) -> tuple[TimelineEvent, ...]:
    """Return every operation of one replayed step, for drawing; InvalidRequest for an illegal plan."""
    setting = _setting(request)
    fixed = read_full_plan(plan, setting)
    violations = _violations(setting, fixed)
    if violations or fixed.assignment is None:
        raise InvalidRequest(violations[0].rule, pointer=violations[0].pointer)
    return timeline(play(_cost_model(request, setting), fixed.layout, fixed.assignment))


def _violations(setting: Setting, fixed: FixedPlan) -> tuple[Violation, ...]:
    return (*layout_violations(setting, fixed.layout), *fixed.violations)


def _setting(request: PlanRequest) -> Setting:
    return Setting(
        workload=request.workload,
        cluster=request.cluster,
        job=request.job,
        framework=framework_by_name(request.job.framework),
    )


def _cost_model(request: PlanRequest, setting: Setting) -> CostModel:
    if len(request.cluster.node_groups) > 1:
        names = tuple(group.name for group in request.cluster.node_groups)
        raise InvalidRequest(
            "node groups of several kinds cannot be planned together yet; pick one of them",
            pointer="/cluster/node_groups",
            nearest_legal=names,
        )
    return CostModel(
        setting=setting,
        group=request.cluster.node_groups[0],
        profiles=request.profiles,
        memory_fraction=request.constraints.memory_fraction,
    )


def _used_profiles(request: PlanRequest) -> tuple[UsedProfile, ...]:
    return tuple(UsedProfile(name=profile.name, digest=profile.digest) for profile in request.profiles)
