"""The use cases, top to bottom: plan a training job, evaluate a plan that the caller fixes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from planner.alternatives import alternatives
from planner.cluster import Cluster
from planner.communication import switches
from planner.cost.model import CostModel
from planner.cost.pipeline import Assignment
from planner.cost.placed_layout import place_on_groups
from planner.errors import InvalidRequest
from planner.expansion import FixedPlan, expand_short_plan
from planner.explanation import (
    explain,
    host_warnings,
    memory_warnings,
    provenance_warnings,
    training_warnings,
)
from planner.framework import Framework
from planner.full_plan import full_plan, read_full_plan
from planner.growth import grown_cluster
from planner.job import Constraints, Job, Precision, SolverLimits
from planner.legality import Setting, layout_violations
from planner.machine_words import calibration_warnings, machine_words
from planner.placement import named_group
from planner.plan import (
    NearestFit,
    Prediction,
    Result,
    Shortage,
    Status,
    TimelineEvent,
    UsedProfile,
)
from planner.played_plan import PlayedPlan, play, play_placed
from planner.prediction import predict
from planner.profile import Profile
from planner.programs import traits_of
from planner.search.best_first import search
from planner.search.certificate import certify
from planner.search.dimensions import dimensions
from planner.search.offloading import is_searched
from planner.search.outcome import Candidate, ProgressReport, SearchOutcome
from planner.search.refusal import why_nothing_is_legal
from planner.search.sending import check_consent
from planner.search.shortage import least_needs
from planner.search.space import Space, search_space
from planner.strategy import Layout, ShortPlan, TrainingPlan, Violation
from planner.timeline import timeline
from planner.units import NANOSECONDS_PER_SECOND, Seconds
from planner.workload.layers import Workload
from planner.workload.trainable import trained_workload

NODE_GROUP: Final = "node_group"
"""The word by which a caller picks the node group to plan for."""
ANY_GAP: Final = 1e6
LARGEST_GROWTH: Final = 64
"""How many times the devices a nearest fit may ask for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """What to train on which machines, and which measurements may be used."""

    workload: Workload
    cluster: Cluster
    job: Job
    constraints: Constraints
    solver: SolverLimits
    profiles: tuple[Profile, ...]
    reference: Workload | None = None
    """The frozen second model of a loss that has one; None for the same model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a search has come; ``meshes_left`` counts the open nodes of the search."""

    best_seconds: Seconds | None
    lower_bound_seconds: Seconds
    meshes_left: int
    meshes_total: int


def plan_training(request: PlanRequest, *, progress: Callable[[Progress], None] | None = None) -> Result:
    """Return the plan that no plan of the described space beats, with its proof.

    Raises InvalidRequest for fixed choices that nothing can satisfy.
    """
    space, model, outcome = _searched(request, report=_reporter(progress))
    if outcome.total == 0 and (request.constraints.fixed or request.constraints.bounds):
        raise why_nothing_is_legal(space)
    if outcome.best is not None:
        return _planned(request, model, space, outcome, outcome.best)
    if outcome.finished:
        return _nothing_fits(request, model, space)
    return _result(request, Status.UNKNOWN, warnings=("the time limit ended the search before any plan fit",))


def best_plan(request: PlanRequest, *, gap_on_hosts: float | None = None) -> Result:
    """Return the fastest plan with its certificate alone: no prediction, no alternatives, no reasons.

    ``gap_on_hosts`` is the relative gap that will do where nothing fits without the hosts.
    """
    space, _, outcome = _searched(request, gap_on_hosts=gap_on_hosts)
    best = outcome.best
    if best is None:
        return _result(request, Status.INFEASIBLE if outcome.finished else Status.UNKNOWN)
    certificate = certify(outcome, best, dimensions=dimensions(space))
    return _result(
        request,
        Status.OPTIMAL if certificate.proven_optimal else Status.FEASIBLE,
        plan=full_plan(best.layout, best.assignment, space.setting),
        certificate=certificate,
    )


def _searched(
    request: PlanRequest, *, report: ProgressReport | None = None, gap_on_hosts: float | None = None
) -> tuple[Space, CostModel, SearchOutcome]:
    """Search without the hosts, and only where nothing fits so with them: the space, its costs, its outcome.

    A host is far slower than a device: what fits without it is seldom slower, and found much sooner.
    """
    space, limits = searched_space(request), request.solver
    model = _cost_model(request, space.setting)
    outcome = search(space, model, limits, report=report)
    left = limits.time_limit_seconds - outcome.solve_seconds
    whole = replace(space, looks_at_hosts=True)
    if outcome.best is not None or not outcome.finished or not outcome.total or not is_searched(whole):
        return space, model, outcome
    if left <= 0:
        return whole, model, replace(outcome, finished=False)
    # What was timed for the space without hosts bounds no plan with them.
    model = _cost_model(request, space.setting)
    gap = limits.relative_gap if gap_on_hosts is None else gap_on_hosts
    rest = replace(limits, time_limit_seconds=left, relative_gap=gap)
    return whole, model, search(whole, model, rest, report=report)


def evaluate_plan(request: PlanRequest, plan: TrainingPlan | ShortPlan) -> Result:
    """Return the prediction for a plan that the caller fixes; an illegal one gets its violations."""
    setting = _setting(request)
    fixed = expand_short_plan(plan, setting) if isinstance(plan, ShortPlan) else read_full_plan(plan, setting)
    violations = _violations(setting, fixed)
    if violations or fixed.assignment is None:
        return _result(request, Status.ILLEGAL, violations=violations)
    prediction = predict(_played(request, setting, fixed, fixed.assignment))
    written = full_plan(fixed.layout, fixed.assignment, setting, node_groups=fixed.node_groups)
    return _result(
        request,
        Status.FITS if prediction.fits else Status.DOES_NOT_FIT,
        plan=written,
        prediction=prediction,
        explanation=(
            *explain(
                written,
                prediction,
                memory_fraction=request.constraints.memory_fraction,
                switches=switches(setting, written.sharding),
            ),
            *machine_words(request.cluster, request.profiles),
        ),
        warnings=(*_warnings(request, prediction), *_idle_devices(setting, written)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LegalPlan:
    """A plan as it is priced: its layout, how many layers run how in each chunk, where stages sit."""

    layout: Layout
    assignment: Assignment
    node_groups: tuple[str, ...]


def fixed_plan(request: PlanRequest, plan: TrainingPlan | ShortPlan) -> tuple[Setting, LegalPlan]:
    """Return a plan that the caller fixes, as it is priced; InvalidRequest for an illegal one."""
    setting = _setting(request)
    fixed = expand_short_plan(plan, setting) if isinstance(plan, ShortPlan) else read_full_plan(plan, setting)
    violations = _violations(setting, fixed)
    if violations or fixed.assignment is None:
        raise InvalidRequest(violations[0].rule, pointer=violations[0].pointer)
    legal = LegalPlan(layout=fixed.layout, assignment=fixed.assignment, node_groups=tuple(fixed.node_groups))
    return setting, legal


def check_request(request: PlanRequest) -> None:
    """Raise InvalidRequest where no plan can do what a request asks for, before any is sought."""
    _setting(request)


def plan_timeline(request: PlanRequest, plan: TrainingPlan) -> tuple[TimelineEvent, ...]:
    """Return every operation of one replayed step, for drawing; InvalidRequest for an illegal plan."""
    setting, fixed = fixed_plan(request, plan)
    return timeline(_played(request, setting, fixed, fixed.assignment))


def _played(
    request: PlanRequest, setting: Setting, fixed: FixedPlan | LegalPlan, assignment: Assignment
) -> PlayedPlan:
    """Return one step of a legal plan, replayed with each stage on its node group."""
    placed = place_on_groups(
        fixed.layout,
        fixed.node_groups,
        setting=setting,
        profiles=request.profiles,
        memory_fraction=request.constraints.memory_fraction,
    )
    return play_placed(placed, fixed.layout, assignment)


def _planned(
    request: PlanRequest, model: CostModel, space: Space, outcome: SearchOutcome, best: Candidate
) -> Result:
    played = play(model, best.layout, best.assignment)
    prediction = predict(played)
    plan = full_plan(best.layout, best.assignment, space.setting)
    picked = {NODE_GROUP: "fixed by user"} if NODE_GROUP in request.constraints.fixed else {}
    certificate = certify(outcome, best, dimensions=dimensions(space) | picked)
    others = alternatives(model, space, outcome, prediction=prediction, limits=request.solver)
    return _result(
        request,
        Status.OPTIMAL if certificate.proven_optimal else Status.FEASIBLE,
        plan=plan,
        prediction=prediction,
        certificate=certificate,
        alternatives=others,
        explanation=(
            *explain(
                plan,
                prediction,
                certificate=certificate,
                alternatives=others,
                memory_fraction=request.constraints.memory_fraction,
                switches=switches(space.setting, plan.sharding),
            ),
            *machine_words(request.cluster, request.profiles),
        ),
        warnings=(*_warnings(request, prediction), *_idle_devices(space.setting, plan)),
    )


def _nothing_fits(request: PlanRequest, model: CostModel, space: Space) -> Result:
    needs = least_needs(space, model)
    need = needs.device
    if need is None:
        text = (
            f"no legal plan uses up to {space.num_devices} devices: no product of degrees that the model "
            f"and the global batch of {request.job.global_batch_size} allow is as small"
        )
        return _result(request, Status.INFEASIBLE, warnings=(text,), nearest_fit=_nearest_fit(request))
    shortage = [
        Shortage(
            resource="device_memory",
            stage=need.stage,
            node_group=model.group.name,
            needed_bytes=need.needed_bytes,
            available_bytes=need.available_bytes,
        )
    ]
    if needs.host_bytes is not None:
        # With so much on each host the devices would suffice.
        shortage.append(
            Shortage(
                resource="host_memory",
                stage=None,
                node_group=model.group.name,
                needed_bytes=needs.host_bytes,
                available_bytes=float(model.host_limit_bytes),
            )
        )
    return _result(request, Status.INFEASIBLE, shortage=tuple(shortage), nearest_fit=_nearest_fit(request))


def _nearest_fit(request: PlanRequest) -> NearestFit | None:
    """Return the least multiple (by doubling) of the devices on which a plan fits, with that plan."""
    factor = 2
    while factor <= LARGEST_GROWTH:
        growth = grown_cluster(request.cluster, factor, group=_picked_group(request))
        if growth is None:
            return None
        limits = replace(request.solver, relative_gap=1.0)
        grown = replace(request, cluster=growth.cluster, solver=limits)
        # Where only offload makes room any plan will do: it is no plan for those machines yet.
        found = best_plan(grown, gap_on_hosts=ANY_GAP)
        if found.plan is not None:
            return NearestFit(change=growth.change, plan=found.plan)
        factor *= 2
    return None


def _reporter(
    progress: Callable[[Progress], None] | None,
) -> Callable[[SearchOutcome, int], None] | None:
    if progress is None:
        return None

    def report(outcome: SearchOutcome, nodes_left: int) -> None:
        best = outcome.best
        progress(
            Progress(
                best_seconds=best.makespan_ns / NANOSECONDS_PER_SECOND if best else None,
                lower_bound_seconds=outcome.lower_bound_ns / NANOSECONDS_PER_SECOND,
                meshes_left=nodes_left,
                meshes_total=outcome.total,
            )
        )

    return report


def _warnings(request: PlanRequest, prediction: Prediction) -> tuple[str, ...]:
    fraction = request.constraints.memory_fraction
    return (
        *training_warnings(request.job, _traits(request.job)),
        *memory_warnings(prediction, memory_fraction=fraction),
        *host_warnings(prediction, memory_fraction=fraction),
        *provenance_warnings(prediction),
        *calibration_warnings(request.cluster, request.profiles),
    )


def _idle_devices(setting: Setting, plan: TrainingPlan) -> tuple[str, ...]:
    used, available = plan.mesh.world_size, setting.cluster.num_devices
    return (f"the plan uses {used} of {available} devices",) if used < available else ()


def _violations(setting: Setting, fixed: FixedPlan) -> tuple[Violation, ...]:
    return (*layout_violations(setting, fixed.layout), *fixed.violations)


def searched_space(request: PlanRequest) -> Space:
    """Return what a search decides: on one node group, which the caller picks where there are several."""
    setting = _setting(request)
    group = _picked_group(request)
    others = {word: value for word, value in request.constraints.fixed.items() if word != NODE_GROUP}
    space = search_space(
        replace(setting, cluster=request.cluster.only(group)), replace(request.constraints, fixed=others)
    )
    check_consent(space)
    return space


def _picked_group(request: PlanRequest) -> str:
    """Return the node group to search on.

    Raises InvalidRequest for several groups of which none is fixed, and UnknownName for one that is not
    there.
    """
    name, names = request.constraints.fixed.get(NODE_GROUP), request.cluster.group_names
    if name is None and len(names) > 1:
        raise InvalidRequest(
            f"the node groups {', '.join(names)} cannot be searched together yet: pick one, as in "
            f'{{"constraints": {{"fixed": {{"{NODE_GROUP}": "{names[0]}"}}}}}} or --fix '
            f"{NODE_GROUP}={names[0]}; a plan over all of them can be evaluated",
            pointer="/cluster/node_groups",
            nearest_legal=names,
        )
    wanted = None if name is None else str(name)
    pointer = f"/constraints/fixed/{NODE_GROUP}"
    return named_group(request.cluster, wanted, pointer=pointer).group_names[0]


def _traits(job: Job) -> Framework:
    return traits_of(job.framework, job.framework_version, compiled=job.compiled)


def _setting(request: PlanRequest) -> Setting:
    framework = _traits(request.job)
    precision = request.job.precision
    if precision in framework.refused_precisions:
        raise InvalidRequest(
            f"{framework.name} does not train in {precision}",
            pointer="/job/precision",
            nearest_legal=(Precision.BF16.value,),
        )
    workload = trained_workload(request.workload, request.job, reference=request.reference)
    return Setting(workload=workload, cluster=request.cluster, job=request.job, framework=framework)


def _cost_model(request: PlanRequest, setting: Setting) -> CostModel:
    """Return the cost model of the one node group of a search."""
    return CostModel(
        setting=setting,
        group=setting.cluster.node_groups[0],
        profiles=request.profiles,
        memory_fraction=request.constraints.memory_fraction,
    )


def _result(request: PlanRequest, status: Status, **parts: object) -> Result:
    used = tuple(UsedProfile(name=profile.name, digest=profile.digest) for profile in request.profiles)
    return replace(Result(status=status, profiles=used), **parts)  # type: ignore[arg-type]  # fields of Result
