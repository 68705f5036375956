"""From a request on the wire to its answer: resolve the names, ask the planner, write the result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from api.jobs.effort import num_passes, refuse_endless
from api.profile_library import LOCAL, ProfileLibrary, StoredProfile
from api.schemas.cluster import ClusterDocument
from api.schemas.places import pointer_in_full_form
from api.schemas.plan import PlanDocument
from api.schemas.request import AnyRequestDocument, EvaluationRequestDocument, PlanRequestDocument
from api.schemas.result import ResultDocument
from api.schemas.support import refuse_unsupported
from api.version import VERSION
from planner.cluster import Cluster
from planner.cluster_presets import cluster_preset_names
from planner.errors import InvalidRequest, MissingMeasurements, UnknownName
from planner.job import Precision
from planner.names import nearest_names
from planner.plan import Result, TimelineEvent, UsedProfile
from planner.planning import (
    PlanRequest,
    Progress,
    check_request,
    evaluate_plan,
    plan_timeline,
    plan_training,
)
from planner.relatives import devices_that_speak_for
from planner.sensitivity import with_sensitivity

MAX_DRAWN_PASSES: Final = 500_000
"""Operations that a trace has at the most: about 100 MB of JSON."""

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A request with every name in it resolved, and the digests of the profiles that it uses."""

    request: PlanRequest
    digests: Mapping[str, str]


def resolve(document: AnyRequestDocument, *, library: ProfileLibrary) -> Question:
    """Return what a request means; InvalidRequest for what nothing has or nothing can answer yet."""
    refuse_unsupported(document.normalised())
    workload = document.job.with_samples(document.model.to_workload())
    cluster = resolve_cluster(document.cluster, library=library)
    job = document.job.to_job(workload)
    stored = _profiles(document, cluster, precision=job.precision, library=library)
    request = PlanRequest(
        workload=workload,
        cluster=cluster,
        job=job,
        constraints=document.constraints.to_constraints(),
        solver=document.solver.to_limits(),
        profiles=tuple(entry.profile for entry in stored),
        reference=document.job.to_reference(),
    )
    check_request(request)
    return Question(request=request, digests={entry.profile.name: entry.digest for entry in stored})


def check_time_limit(document: AnyRequestDocument, *, most_seconds: float) -> None:
    """Raise InvalidRequest for a search that may take longer than the service allows."""
    if document.solver.time_limit_seconds > most_seconds:
        raise InvalidRequest(
            f"this service searches for {most_seconds:g} s at the most",
            pointer="/solver/time_limit_seconds",
            nearest_legal=(most_seconds,),
        )


def resolve_cluster(document: ClusterDocument, *, library: ProfileLibrary) -> Cluster:
    """Return the cluster that a document means: a system, a machine that was measured, or its own groups."""
    preset, num_devices = document.preset, document.num_devices
    if preset is None or num_devices is None or preset in cluster_preset_names():
        return document.to_cluster()
    machine = library.machine_cluster(preset, num_devices=num_devices)
    if machine is not None:
        return machine
    names = (*cluster_preset_names(), *library.machines())
    hint = "; measure this machine with `meshplan profile` first" if preset == LOCAL else ""
    raise UnknownName(
        f"no cluster {preset!r}{hint}", pointer="/cluster/preset", nearest_legal=nearest_names(preset, names)
    )


def answer(
    document: AnyRequestDocument,
    *,
    result_id: UUID,
    library: ProfileLibrary,
    on_progress: OnProgress | None = None,
) -> ResultDocument:
    """Return the result document of a request; InvalidRequest where it cannot be answered as it stands."""
    question = resolve(document, library=library)
    try:
        result = _result(document, question.request, on_progress=on_progress)
    except MissingMeasurements as error:
        raise _unknown_rate(error, question.request) from error
    return ResultDocument.from_result(
        _as_asked(document, _with_stored_digests(result, question.digests)),
        result_id=result_id,
        version=VERSION,
        request=document.normalised(),
    )


def timeline(
    document: AnyRequestDocument, result: ResultDocument, *, library: ProfileLibrary
) -> tuple[TimelineEvent, ...]:
    """Return every operation of one step of the plan in a result; InvalidRequest where it has none."""
    if result.plan is None:
        raise InvalidRequest("the result has no plan to draw", pointer="/plan")
    plan = result.plan.to_plan()
    if num_passes(plan) > MAX_DRAWN_PASSES:
        raise InvalidRequest(
            f"a step of {num_passes(plan):,} passes is too long to draw",
            pointer="/plan/batch/num_micro_batches",
        )
    return plan_timeline(resolve(document, library=library).request, plan)


def read_request(document: Mapping[str, Any]) -> AnyRequestDocument:
    """Return a request, either of the two, from a normalised document."""
    schema = EvaluationRequestDocument if "plan" in document else PlanRequestDocument
    return schema.model_validate(document)


def _result(document: AnyRequestDocument, request: PlanRequest, *, on_progress: OnProgress | None) -> Result:
    if isinstance(document, EvaluationRequestDocument):
        plan = document.plan.to_plan()
        refuse_endless(plan, job=request.job, cluster=request.cluster)
        return evaluate_plan(request, plan)
    return with_sensitivity(
        request,
        plan_training(request, progress=on_progress),
        explain=document.solver.explain,
        sensitivity=document.solver.sensitivity,
    )


def _profiles(
    document: AnyRequestDocument, cluster: Cluster, *, precision: Precision, library: ProfileLibrary
) -> tuple[StoredProfile, ...]:
    """Return the profiles that are named, else those of the devices and of relatives that speak for them."""
    if document.profiles is not None:
        return library.named(document.profiles)
    devices = [group.device for group in cluster.node_groups]
    speaking = [name for device in devices for name in devices_that_speak_for(device, precision)]
    return library.for_devices([*(device.name for device in devices), *speaking])


def _with_stored_digests(result: Result, digests: Mapping[str, str]) -> Result:
    """Name the profiles by the digests under which they can be looked up."""
    used = (
        UsedProfile(name=profile.name, digest=digests.get(profile.name, profile.digest))
        for profile in result.profiles
    )
    return replace(result, profiles=tuple(used))


def _as_asked(document: AnyRequestDocument, result: Result) -> Result:
    """Point at the fields of the form in which the plan was asked about."""
    if not isinstance(document, EvaluationRequestDocument) or not isinstance(document.plan, PlanDocument):
        return result
    violations = (
        replace(violation, pointer=pointer_in_full_form(violation.pointer)) for violation in result.violations
    )
    return replace(result, violations=tuple(violations))


def _unknown_rate(error: MissingMeasurements, request: PlanRequest) -> InvalidRequest:
    """Return the error of a precision in which nobody knows how fast a device is, with the known ones."""
    devices = [group.device for group in request.cluster.node_groups if group.device.name == error.device]
    known = [precision for device in devices for precision in device.peak_flops_per_second]
    return InvalidRequest(error.message, pointer="/job/precision", nearest_legal=known)
