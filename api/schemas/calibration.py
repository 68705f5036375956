"""Calibrations on the wire: steps that were logged, and the factors that they ask for."""

from typing import Annotated
from uuid import UUID

from pydantic import Field

from api.schemas.document import (
    EXPERIMENTAL,
    Flag,
    InputDocument,
    Name,
    NonNegative,
    OutputDocument,
    Quantity,
)
from api.schemas.request import EvaluationRequestDocument

MOST_STEPS = 200
"""Logged steps of one calibration: each is priced some hundred times."""


class LoggedStepDocument(InputDocument):
    """One plan that ran, and the time of its steps."""

    request: EvaluationRequestDocument = Field(
        description="What was trained on which machines by which plan, as an evaluation says it.",
        json_schema_extra=EXPERIMENTAL,
    )
    step_seconds: Quantity = Field(
        description="Of one optimizer step, a median or a low quantile.", json_schema_extra=EXPERIMENTAL
    )
    spread_seconds: NonNegative = Field(
        default=0.0, description="One standard deviation of that.", json_schema_extra=EXPERIMENTAL
    )
    label: Name | None = Field(default=None, json_schema_extra=EXPERIMENTAL)


class CalibrationRequestDocument(InputDocument):
    """What a machine is calibrated by."""

    device: Name | None = Field(
        default=None,
        description="Which device is calibrated; null: the one that all steps ran on.",
        json_schema_extra=EXPERIMENTAL,
    )
    name: Name | None = Field(
        default=None,
        description="Of the profile that will hold the calibration; null: DEVICE/calibrated.",
        json_schema_extra=EXPERIMENTAL,
    )
    steps: Annotated[tuple[LoggedStepDocument, ...], Field(max_length=MOST_STEPS)] = Field(
        default=(), description="Steps that were logged elsewhere.", json_schema_extra=EXPERIMENTAL
    )
    trials: Annotated[tuple[UUID, ...], Field(max_length=MOST_STEPS)] | None = Field(
        default=None,
        description="Which stored trials count; null: the newest of the device where no step is given.",
        json_schema_extra=EXPERIMENTAL,
    )
    dry_run: Flag = Field(
        default=False, description="Whether nothing is stored.", json_schema_extra=EXPERIMENTAL
    )


class FittedKindDocument(OutputDocument):
    """One factor: the time of a kind in running steps over its predicted time."""

    kind: str = Field(json_schema_extra=EXPERIMENTAL)
    factor: float = Field(json_schema_extra=EXPERIMENTAL)
    relative_error: float = Field(description="One standard deviation.", json_schema_extra=EXPERIMENTAL)
    prior_relative_error: float = Field(
        description="The same before any step was known.", json_schema_extra=EXPERIMENTAL
    )
    informed: bool = Field(
        description="False where no step says anything of it: it stays at 1.", json_schema_extra=EXPERIMENTAL
    )
    largest_share: float = Field(
        description="Of a logged step, as predicted.", json_schema_extra=EXPERIMENTAL
    )


class FittedStepDocument(OutputDocument):
    """A logged step as predicted before and after."""

    label: str = Field(json_schema_extra=EXPERIMENTAL)
    measured_seconds: float = Field(json_schema_extra=EXPERIMENTAL)
    before_seconds: float = Field(json_schema_extra=EXPERIMENTAL)
    after_seconds: float = Field(json_schema_extra=EXPERIMENTAL)


class UnusedStepDocument(OutputDocument):
    """A trial that does not count, and why."""

    label: str = Field(json_schema_extra=EXPERIMENTAL)
    reason: str = Field(json_schema_extra=EXPERIMENTAL)


class ChangedPlanDocument(OutputDocument):
    """A stored plan that another one beats under the calibration."""

    id: UUID = Field(json_schema_extra=EXPERIMENTAL)
    step_time_seconds: float = Field(description="Of the plan, now.", json_schema_extra=EXPERIMENTAL)
    better_step_time_seconds: float = Field(
        description="Of the best of its stored alternatives, now.", json_schema_extra=EXPERIMENTAL
    )
    better: str = Field(description="Why that one is among them.", json_schema_extra=EXPERIMENTAL)
    pointer: str = Field(description="Where it stands in the result.", json_schema_extra=EXPERIMENTAL)


class CalibrationDocument(OutputDocument):
    """The corrections of a machine, how well they tell its steps, and the plans that they change."""

    name: str = Field(description="Of the profile that holds it.", json_schema_extra=EXPERIMENTAL)
    device: str = Field(json_schema_extra=EXPERIMENTAL)
    digest: str | None = Field(
        description="Of that profile; null where nothing was stored.", json_schema_extra=EXPERIMENTAL
    )
    kinds: tuple[FittedKindDocument, ...] = Field(json_schema_extra=EXPERIMENTAL)
    steps: tuple[FittedStepDocument, ...] = Field(json_schema_extra=EXPERIMENTAL)
    median_error_before: float = Field(
        description="Absolute relative error of the steps.", json_schema_extra=EXPERIMENTAL
    )
    median_error_after: float = Field(json_schema_extra=EXPERIMENTAL)
    unused: tuple[UnusedStepDocument, ...] = Field(json_schema_extra=EXPERIMENTAL)
    changed_plans: tuple[ChangedPlanDocument, ...] = Field(json_schema_extra=EXPERIMENTAL)
    num_plans_compared: int = Field(
        description="Stored plans of the device that have alternatives.", json_schema_extra=EXPERIMENTAL
    )
