"""The answer on the wire: the plan, its prediction, how the search ended, and why."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from pydantic import Field

from api.schemas.certificate import CertificateDocument
from api.schemas.document import EXPERIMENTAL, OutputDocument
from api.schemas.plan import PlanDocument
from api.schemas.prediction import PredictionDocument
from api.schemas.problem import ProblemDocument
from planner.plan import (
    Alternative,
    Explanation,
    NearestFit,
    Result,
    Sensitivity,
    Shortage,
    Status,
    UsedProfile,
)
from planner.planning import Progress
from planner.strategy import Violation


class State(StrEnum):
    """How far the work on a request is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class UsedProfileDocument(OutputDocument):
    """Measurements that a prediction was made from."""

    name: str
    digest: str

    @classmethod
    def from_profile(cls, profile: UsedProfile) -> Self:
        """Return the document of a profile that was used."""
        return cls(name=profile.name, digest=profile.digest)


class ViolationDocument(OutputDocument):
    """A rule that a plan breaks."""

    pointer: str
    rule: str
    nearest_legal: tuple[Any, ...] = Field(description="The legal values nearest to what was given.")

    @classmethod
    def from_violation(cls, violation: Violation) -> Self:
        """Return the document of a violation."""
        return cls(
            pointer=violation.pointer, rule=violation.rule, nearest_legal=tuple(violation.nearest_legal)
        )


class AlternativeDocument(OutputDocument):
    """Another plan worth knowing."""

    why: str
    plan: PlanDocument
    prediction: PredictionDocument

    @classmethod
    def from_alternative(cls, alternative: Alternative) -> Self:
        """Return the document of an alternative."""
        return cls(
            why=alternative.why,
            plan=PlanDocument.from_plan(alternative.plan),
            prediction=PredictionDocument.from_prediction(alternative.prediction),
        )


class ExplanationDocument(OutputDocument):
    """A sentence about the answer, and the field that backs it."""

    text: str
    pointer: str

    @classmethod
    def from_explanation(cls, explanation: Explanation) -> Self:
        """Return the document of an explanation."""
        return cls(text=explanation.text, pointer=explanation.pointer)


class ShortageDocument(OutputDocument):
    """What even the most frugal plan lacks."""

    resource: str
    stage: int | None
    node_group: str
    needed_bytes: float
    available_bytes: float

    @classmethod
    def from_shortage(cls, shortage: Shortage) -> Self:
        """Return the document of a shortage."""
        return cls(
            resource=shortage.resource,
            stage=shortage.stage,
            node_group=shortage.node_group,
            needed_bytes=shortage.needed_bytes,
            available_bytes=shortage.available_bytes,
        )


class NearestFitDocument(OutputDocument):
    """The smallest change under which a plan fits."""

    change: dict[str, Any] = Field(description="From JSON pointers into the request to new values.")
    plan: PlanDocument

    @classmethod
    def from_fit(cls, fit: NearestFit) -> Self:
        """Return the document of the nearest fit."""
        return cls(change=dict(fit.change), plan=PlanDocument.from_plan(fit.plan))


class SensitivityDocument(OutputDocument):
    """What a changed request comes to, solved again."""

    why: str = Field(description="What was changed, in words.")
    change: dict[str, Any] = Field(
        description="From JSON pointers into the request to new values, null for left out; a preset's node "
        "groups are those that GET /v1/clusters shows for it."
    )
    status: Status = Field(description="How that search ended.")
    step_time_seconds: float | None = Field(description="Of the best plan then; null without one.")
    relative_change: float | None = Field(description="Of the step time: -0.1 is a tenth less.")
    changes_plan: bool | None = Field(description="Whether the best plan is another one then.")
    plan: PlanDocument | None

    @classmethod
    def from_sensitivity(cls, sensitivity: Sensitivity) -> Self:
        """Return the document of a changed request."""
        return cls(
            why=sensitivity.why,
            change=dict(sensitivity.change),
            status=sensitivity.status,
            step_time_seconds=sensitivity.step_time_seconds,
            relative_change=sensitivity.relative_change,
            changes_plan=sensitivity.changes_plan,
            plan=None if sensitivity.plan is None else PlanDocument.from_plan(sensitivity.plan),
        )


class ProgressDocument(OutputDocument):
    """How far a search has come."""

    best_seconds: float | None
    lower_bound_seconds: float
    meshes_left: int
    meshes_total: int

    @classmethod
    def from_progress(cls, progress: Progress) -> Self:
        """Return the document of the progress."""
        return cls(
            best_seconds=progress.best_seconds,
            lower_bound_seconds=progress.lower_bound_seconds,
            meshes_left=progress.meshes_left,
            meshes_total=progress.meshes_total,
        )


class ResultDocument(OutputDocument):
    """What became of a request."""

    id: UUID
    version: str = Field(description="Of meshplan.")
    request: dict[str, Any] = Field(description="With defaults filled in.")
    profiles: tuple[UsedProfileDocument, ...] = ()
    state: State
    status: Status | None = Field(default=None, description="How it ended; null before.")
    plan: PlanDocument | None = None
    violations: tuple[ViolationDocument, ...] = ()
    prediction: PredictionDocument | None = None
    certificate: CertificateDocument | None = None
    alternatives: tuple[AlternativeDocument, ...] = ()
    explanation: tuple[ExplanationDocument, ...] = ()
    warnings: tuple[str, ...] = ()
    shortage: tuple[ShortageDocument, ...] = ()
    nearest_fit: NearestFitDocument | None = None
    sensitivity: tuple[SensitivityDocument, ...] | None = Field(
        default=None,
        description="Changed requests, solved again, where solver.explain or .sensitivity asked for them.",
        json_schema_extra=EXPERIMENTAL,
    )
    progress: ProgressDocument | None = Field(
        default=None, description="While the search runs.", json_schema_extra=EXPERIMENTAL
    )
    problem: ProblemDocument | None = Field(
        default=None, description="Why the work failed.", json_schema_extra=EXPERIMENTAL
    )

    @classmethod
    def from_result(
        cls, result: Result, *, result_id: UUID, version: str, request: Mapping[str, Any]
    ) -> Self:
        """Return the document of what the planner answered to a normalised request."""
        return cls(
            id=result_id,
            version=version,
            request=dict(request),
            profiles=tuple(map(UsedProfileDocument.from_profile, result.profiles)),
            state=State.DONE,
            status=result.status,
            plan=None if result.plan is None else PlanDocument.from_plan(result.plan),
            violations=tuple(map(ViolationDocument.from_violation, result.violations)),
            prediction=_prediction(result),
            certificate=(
                None
                if result.certificate is None
                else CertificateDocument.from_certificate(result.certificate)
            ),
            alternatives=tuple(map(AlternativeDocument.from_alternative, result.alternatives)),
            explanation=tuple(map(ExplanationDocument.from_explanation, result.explanation)),
            warnings=tuple(result.warnings),
            shortage=tuple(map(ShortageDocument.from_shortage, result.shortage)),
            nearest_fit=None
            if result.nearest_fit is None
            else NearestFitDocument.from_fit(result.nearest_fit),
            sensitivity=_sensitivity(result),
        )


def _sensitivity(result: Result) -> tuple[SensitivityDocument, ...] | None:
    if result.sensitivity is None:
        return None
    return tuple(map(SensitivityDocument.from_sensitivity, result.sensitivity))


def _prediction(result: Result) -> PredictionDocument | None:
    return None if result.prediction is None else PredictionDocument.from_prediction(result.prediction)
