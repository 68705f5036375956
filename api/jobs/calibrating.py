"""A machine calibrated by its trials and logged steps, and stored plans held against the calibration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import sqrt
from statistics import stdev
from typing import Any, Final
from uuid import UUID

from pydantic import ValidationError

from api.jobs.answering import read_request, resolve
from api.schemas.calibration import (
    CalibrationDocument,
    CalibrationRequestDocument,
    ChangedPlanDocument,
    FittedKindDocument,
    FittedStepDocument,
    UnusedStepDocument,
)
from api.schemas.plan import PlanDocument
from api.schemas.request import AnyRequestDocument
from api.stores.plans import PlanKind, PlanRecord, PlanState
from api.stores.profiles import profile_digest
from api.stores.trials import TrialRecord
from api.tables import utc_now
from api.workspace import Workspace
from planner.calibration import Calibration, calibrate, calibration_facts
from planner.errors import InvalidRequest
from planner.logged_steps import LoggedStep, before_calibration, predicted_steps
from planner.planning import PlanRequest
from planner.profile import Profile

MOST_TRIALS: Final = 50
"""The newest ones count: a machine changes."""
MOST_PLANS: Final = 50
"""Stored plans that are compared with their alternatives, the newest ones."""
MEDIAN_OVER_MEAN: Final = 1.2533
"""Standard deviation of a median over that of a mean, of normally distributed samples: root of pi / 2."""
FASTER: Final = 1e-6
"""Relative lead by which another plan is faster: less is rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """Steps that count, and trials that do not, with the reason."""

    steps: tuple[LoggedStep, ...]
    unused: tuple[UnusedStepDocument, ...]


def calibrate_machine(document: CalibrationRequestDocument, *, workspace: Workspace) -> CalibrationDocument:
    """Return the calibration that trials and logged steps ask for, stored as a profile of its own.

    Raises InvalidRequest for fewer than three steps, for steps of several devices, and for a name that a
    built-in profile has.
    """
    given = tuple(_given_steps(document, workspace=workspace))
    tried = _trial_steps(document, workspace=workspace)
    device = document.device or _only_device([*given, *tried.steps])
    # All trials of other machines are passed over; a step that was given of one is at fault.
    own = tuple(step for step in tried.steps if _device_of(step) == device)
    steps = (*given, *own)
    found = calibrate(steps, device=device)
    request = steps[0].request
    profile = Profile(
        name=document.name or f"{device.lower()}/calibrated",
        device=device,
        facts=calibration_facts(found, request, created_at=utc_now().isoformat()),
    )
    _check_name(profile.name, workspace=workspace)
    digest = None
    if not document.dry_run:
        digest = _stored(profile, workspace=workspace)
    plans = [record for record in _stored_plans(workspace) if _is_on(record, device, workspace=workspace)]
    changed = (_changed(record, profile, workspace=workspace) for record in plans)
    return _document(
        found,
        profile,
        digest=digest,
        unused=tried.unused,
        changed=tuple(one for one in changed if one is not None),
        compared=len(plans),
    )


def _stored(profile: Profile, *, workspace: Workspace) -> str:
    """Keep a calibration; return the digest under which it is stored."""
    document = profile.to_document()
    workspace.profiles.add(document)
    return profile_digest(document)


def _check_name(name: str, *, workspace: Workspace) -> None:
    """Raise InvalidRequest for the name of a profile that has measurements: it would be lost."""
    for summary in workspace.profiles.summaries():
        rows = summary.num_kernels + summary.num_collectives + summary.num_transfers
        if summary.name == name and rows:
            raise InvalidRequest(f"{name} has measurements: name the calibration otherwise", pointer="/name")


def _given_steps(document: CalibrationRequestDocument, *, workspace: Workspace) -> Iterator[LoggedStep]:
    for number, step in enumerate(document.steps):
        try:
            request = resolve(step.request, library=workspace.library).request
        except InvalidRequest as error:
            raise InvalidRequest(
                error.message,
                pointer=f"/steps/{number}/request{error.pointer}",
                nearest_legal=error.nearest_legal,
            ) from error
        yield LoggedStep(
            label=step.label or f"step {number}",
            request=request,
            plan=step.request.plan.to_plan(),
            measured_seconds=step.step_seconds,
            spread_seconds=step.spread_seconds,
        )


def _trial_steps(document: CalibrationRequestDocument, *, workspace: Workspace) -> _Found:
    steps: list[LoggedStep] = []
    unused: list[UnusedStepDocument] = []
    for record in _trials(document, workspace=workspace):
        try:
            steps.append(_step_of(record, workspace=workspace))
        except InvalidRequest as error:
            unused.append(UnusedStepDocument(label=f"trial {record.id}", reason=error.message))
    return _Found(steps=tuple(steps), unused=tuple(unused))


def _trials(document: CalibrationRequestDocument, *, workspace: Workspace) -> Sequence[TrialRecord]:
    if document.trials is None:
        return [] if document.steps else workspace.trials.recent(limit=MOST_TRIALS)
    records = [(number, trial_id, workspace.trials.get(trial_id)) for number, trial_id in _numbered(document)]
    for number, trial_id, record in records:
        if record is None:
            raise InvalidRequest(f"no trial {trial_id}", pointer=f"/trials/{number}")
    return [record for _, _, record in records if record is not None]


def _numbered(document: CalibrationRequestDocument) -> Iterator[tuple[int, UUID]]:
    yield from enumerate(document.trials or ())


def _step_of(record: TrialRecord, *, workspace: Workspace) -> LoggedStep:
    """Return what a trial logged; InvalidRequest says why it cannot count."""
    report = record.report
    if report["planned_device"] != report["device"]:
        raise InvalidRequest(
            f"planned for {report['planned_device']}, run on {report['device']}", pointer="/trials"
        )
    if report["numerics"]["agree"] is False:
        raise InvalidRequest("its losses are not those of one process", pointer="/trials")
    asked = report.get("request") or _request_of(record, workspace=workspace)
    time = report["step_time"]
    return LoggedStep(
        label=f"trial {record.id}",
        request=resolve(_read(asked), library=workspace.library).request,
        plan=PlanDocument.model_validate(report["plan"]).to_plan(),
        measured_seconds=time["measured_seconds"],
        spread_seconds=_error_of_median(report, otherwise=time["spread_seconds"] or 0.0),
    )


def _error_of_median(report: Mapping[str, Any], *, otherwise: float) -> float:
    """Return one standard deviation of the median of a trial's steps: 1.25 of that of their mean.

    Where the trial does not list its steps the range of all of them stands in, which is more.
    """
    samples = report.get("measured", {}).get("step_time", {}).get("samples_seconds", ())
    return MEDIAN_OVER_MEAN * stdev(samples) / sqrt(len(samples)) if len(samples) > 1 else otherwise


def _request_of(record: TrialRecord, *, workspace: Workspace) -> Mapping[str, Any]:
    """Return the request of a trial that does not hold it itself."""
    plan = None if record.result_id is None else workspace.plans.get(record.result_id)
    if plan is None:
        raise InvalidRequest("the request of its plan is not stored", pointer="/trials")
    return plan.request


def _read(request: Mapping[str, Any]) -> AnyRequestDocument:
    """Return a stored request; InvalidRequest for one that this version does not read."""
    try:
        return read_request(request)
    except ValidationError as error:
        raise InvalidRequest("its request is of another version", pointer="/trials") from error


def _only_device(steps: Sequence[LoggedStep]) -> str:
    devices = sorted({_device_of(step) for step in steps})
    if len(devices) > 1:
        raise InvalidRequest(
            f"the steps ran on {', '.join(devices)}: say which one is calibrated",
            pointer="/device",
            nearest_legal=tuple(devices),
        )
    if not devices:
        raise InvalidRequest(
            "no step is known of any machine: log some, or run `meshplan trial`", pointer="/steps"
        )
    return devices[0]


def _device_of(step: LoggedStep) -> str:
    return step.request.cluster.node_groups[0].device.name


def _stored_plans(workspace: Workspace) -> Iterator[PlanRecord]:
    """Yield the newest plans whose search has alternatives, with their results."""
    for record in workspace.plans.recent(kind=PlanKind.PLAN, state=PlanState.DONE, limit=MOST_PLANS):
        whole = workspace.plans.get(record.id)
        if whole is not None and whole.result and whole.result.get("plan") and whole.result["alternatives"]:
            yield whole


def _is_on(record: PlanRecord, device: str, *, workspace: Workspace) -> bool:
    """Whether a stored plan was made for one kind of device, and is still understood."""
    try:
        cluster = resolve(_read(record.request), library=workspace.library).request.cluster
    except InvalidRequest:
        return False
    return {group.device.name for group in cluster.node_groups} == {device}


def _changed(record: PlanRecord, profile: Profile, *, workspace: Workspace) -> ChangedPlanDocument | None:
    """Return by what a stored plan is beaten under a calibration; None where it stays the best."""
    assert record.result is not None
    request = resolve(_read(record.request), library=workspace.library).request
    others = [
        (number, other)
        for number, other in enumerate(record.result["alternatives"])
        if other["prediction"]["fits"]
    ]
    documents = [record.result["plan"], *(other["plan"] for _, other in others)]
    plans = [PlanDocument.model_validate(document).to_plan() for document in documents]
    try:
        own, *rest = predicted_steps(_calibrated(request, profile), plans)
    except InvalidRequest:
        return None
    if not rest or min(rest) >= own * (1 - FASTER):
        return None
    number, other = others[rest.index(min(rest))]
    return ChangedPlanDocument(
        id=record.id,
        step_time_seconds=own,
        better_step_time_seconds=min(rest),
        better=other["why"],
        pointer=f"/alternatives/{number}",
    )


def _calibrated(request: PlanRequest, profile: Profile) -> PlanRequest:
    """Return a request that this calibration is the only one of."""
    return replace(request, profiles=(*before_calibration(request).profiles, profile))


def _document(
    found: Calibration,
    profile: Profile,
    *,
    digest: str | None,
    unused: tuple[UnusedStepDocument, ...],
    changed: tuple[ChangedPlanDocument, ...],
    compared: int,
) -> CalibrationDocument:
    return CalibrationDocument(
        name=profile.name,
        device=profile.device,
        digest=digest,
        kinds=tuple(
            FittedKindDocument(
                kind=one.kind.value,
                factor=one.correction.factor,
                relative_error=one.correction.relative_error,
                prior_relative_error=one.prior_relative_error,
                informed=one.correction.informed,
                largest_share=one.largest_share,
            )
            for one in found.kinds
        ),
        steps=tuple(FittedStepDocument(**asdict(step)) for step in found.steps),
        median_error_before=found.error_before,
        median_error_after=found.error_after,
        unused=unused,
        changed_plans=changed,
        num_plans_compared=compared,
    )
