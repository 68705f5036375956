"""The use cases, top to bottom: plan a training job, evaluate a plan that the caller fixes."""

from collections.abc import Callable
from dataclasses import dataclass

from planner.cluster import Cluster
from planner.job import Constraints, Job, SolverLimits
from planner.plan import Result, TimelineEvent
from planner.profile import Profile
from planner.strategy import ShortPlan, TrainingPlan
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
    raise NotImplementedError


def plan_timeline(request: PlanRequest, plan: TrainingPlan) -> tuple[TimelineEvent, ...]:
    """Return every operation of one replayed step, for drawing."""
    raise NotImplementedError
