"""The two requests on the wire: find the optimal plan, or predict one that the caller fixes."""

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from api.schemas.cluster import ClusterDocument
from api.schemas.constraints import ConstraintsDocument, EvaluationConstraintsDocument
from api.schemas.document import EXPERIMENTAL, Flag, InputDocument, Name, Number, Quantity, Share
from api.schemas.flat import ShortPlanDocument
from api.schemas.job import JobDocument
from api.schemas.model import ModelDocument
from api.schemas.plan import PlanDocument
from planner.job import SolverLimits

TimeLimit = Annotated[float, Number, Field(gt=0, le=1e6, allow_inf_nan=False)]
DEFAULT_LIMITS = SolverLimits()


class ObjectiveDocument(InputDocument):
    """What makes one plan better than another."""

    minimize: Name = Field(default="step_time", description="step_time; more later.")
    deadline_seconds: Quantity | None = Field(default=None, json_schema_extra=EXPERIMENTAL)
    tokens: Quantity | None = Field(default=None, json_schema_extra=EXPERIMENTAL)


class SolverDocument(InputDocument):
    """When a search may stop."""

    time_limit_seconds: TimeLimit = DEFAULT_LIMITS.time_limit_seconds
    relative_gap: Share = Field(
        default=DEFAULT_LIMITS.relative_gap,
        description="Which gap to the bound is good enough; 0 for a proof.",
    )

    def to_limits(self) -> SolverLimits:
        """Return the limits that the document says."""
        return SolverLimits(time_limit_seconds=self.time_limit_seconds, relative_gap=self.relative_gap)


class PlanSolverDocument(SolverDocument):
    """When a search may stop, and what is solved again after it, in what is left of its time."""

    explain: Flag = Field(
        default=False,
        description="Take away what may bind, one by one, and say what that is worth.",
        json_schema_extra=EXPERIMENTAL,
    )
    sensitivity: Flag = Field(
        default=False,
        description="Solve with more memory, a faster network, more devices, a longer sequence.",
        json_schema_extra=EXPERIMENTAL,
    )


ProfileNames = Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)]
PROFILES_USED = "Names of the measurements that may be used; null: the best for each device."


class PlanRequestDocument(InputDocument):
    """What is to be trained on which machines; the answer is the best plan for it."""

    model: ModelDocument
    cluster: ClusterDocument
    job: JobDocument
    objective: ObjectiveDocument = ObjectiveDocument()
    constraints: ConstraintsDocument = ConstraintsDocument()
    solver: PlanSolverDocument = PlanSolverDocument()
    profiles: ProfileNames | None = Field(default=None, description=PROFILES_USED)

    def normalised(self) -> dict[str, Any]:
        """Return the request as plain data with every default filled in."""
        request = self.model_dump(mode="json")
        request["job"]["attention"] = self.job.attention_or_default().value
        request["job"]["trainable"] = self.job.trainable.filled()
        request["constraints"]["fixed"] = self.constraints.fixed.said()
        request["constraints"]["bounds"] = _without_nulls(request["constraints"]["bounds"])
        return request | {part: _without_nulls(request[part]) for part in ("model", "cluster")}


def _form_of_plan(plan: object) -> str:
    """Tell the full form, which has stages, from the flat one."""
    if isinstance(plan, PlanDocument):
        return "full"
    return "full" if isinstance(plan, dict) and "stages" in plan else "short"


EitherPlan = Annotated[
    Annotated[PlanDocument, Tag("full")] | Annotated[ShortPlanDocument, Tag("short")],
    Discriminator(_form_of_plan),
]
"""A plan in its full form, or in the flat short one."""


class EvaluationRequestDocument(InputDocument):
    """What is trained on which machines by which plan; the answer is what that plan would do."""

    model: ModelDocument
    cluster: ClusterDocument
    job: JobDocument
    plan: EitherPlan
    constraints: EvaluationConstraintsDocument = EvaluationConstraintsDocument()
    solver: SolverDocument = SolverDocument()
    profiles: ProfileNames | None = Field(default=None, description=PROFILES_USED)

    def normalised(self) -> dict[str, Any]:
        """Return the request as plain data with every default filled in."""
        request = self.model_dump(mode="json")
        request["job"]["attention"] = self.job.attention_or_default().value
        request["job"]["trainable"] = self.job.trainable.filled()
        if isinstance(self.plan, ShortPlanDocument):
            request["plan"] = self.plan.said()
        return request | {part: _without_nulls(request[part]) for part in ("model", "cluster")}


AnyRequestDocument = PlanRequestDocument | EvaluationRequestDocument


def _without_nulls(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without the fields that nobody filled."""
    return {field: value for field, value in document.items() if value is not None}
