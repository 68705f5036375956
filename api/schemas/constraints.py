"""What a request fixes, bounds, forbids and consents to, on the wire."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.document import MAX_DEVICES, MAX_SAMPLES, InputDocument, Number, WholeNumber, one_of
from api.schemas.flat import FlatChoices
from planner.job import Constraints
from planner.strategy import RecomputeMode


class Technique(StrEnum):
    """What a plan may be forbidden to use."""

    OFFLOAD = "offload"
    RECOMPUTE = "recompute"
    SEQUENCE_PARALLEL = "sequence_parallel"
    TENSOR_PARALLEL = "tensor_parallel"
    CONTEXT_PARALLEL = "context_parallel"
    PIPELINE_PARALLEL = "pipeline_parallel"
    EXPERT_PARALLEL = "expert_parallel"
    DATA_PARALLEL = "data_parallel"
    VIRTUAL_STAGES = "virtual_stages"
    SHARDING = "sharding"


WITHOUT: Final[Mapping[Technique, tuple[str, object]]] = {
    Technique.RECOMPUTE: ("recompute", RecomputeMode.NONE),
    Technique.SEQUENCE_PARALLEL: ("sequence_parallel", False),
    Technique.TENSOR_PARALLEL: ("tensor_parallel", 1),
    Technique.CONTEXT_PARALLEL: ("context_parallel", 1),
    Technique.PIPELINE_PARALLEL: ("pipeline_parallel", 1),
    Technique.DATA_PARALLEL: ("data_parallel", 1),
    Technique.VIRTUAL_STAGES: ("virtual_stages", 1),
    Technique.SHARDING: ("zero_stage", 0),
}
"""The choice that does without a technique; those that no search uses yet need none."""


class Consent(StrEnum):
    """What a plan may use only where the caller agrees."""

    QUANTIZED_COMMUNICATION = "quantized_communication"
    STALE_UPDATES = "stale_updates"


def _in_order(bounds: tuple[int, int]) -> tuple[int, int]:
    """Refuse a lower bound above the upper one."""
    if bounds[0] > bounds[1]:
        raise PydanticCustomError(
            "bounds", "should be [smallest, largest]", {"nearest_legal": [sorted(bounds)]}
        )
    return bounds


_Bound = Annotated[int, WholeNumber, Field(ge=0, le=max(MAX_DEVICES, MAX_SAMPLES))]
Bounds = Annotated[tuple[_Bound, _Bound], AfterValidator(_in_order)]
"""The smallest and the largest value that is allowed."""
MemoryFraction = Annotated[float, Number, Field(gt=0, le=1, allow_inf_nan=False)]
KnownTechnique = Annotated[Technique, one_of(Technique)]
KnownConsent = Annotated[Consent, one_of(Consent)]

DEFAULT_MEMORY_FRACTION = Constraints().memory_fraction
SAFE_LINE = "The safe line as a share of the capacity of a device."


class BoundsDocument(InputDocument):
    """Between which values the search may choose, by the flat words of a plan."""

    data_parallel: Bounds | None = None
    tensor_parallel: Bounds | None = None
    context_parallel: Bounds | None = None
    pipeline_parallel: Bounds | None = None
    expert_parallel: Bounds | None = None
    expert_tensor_parallel: Bounds | None = None
    all_to_all_degree: Bounds | None = None
    micro_batch_size: Bounds | None = None
    num_micro_batches: Bounds | None = None
    virtual_stages: Bounds | None = None
    interleave_group_size: Bounds | None = None
    zero_stage: Bounds | None = None
    parameters: Bounds | None = None
    gradients: Bounds | None = None
    optimizer: Bounds | None = None

    def by_word(self) -> dict[str, tuple[float, float]]:
        """Return the bounds that are given, by word."""
        return {
            word: bounds for word in type(self).model_fields if (bounds := getattr(self, word)) is not None
        }


class ConstraintsDocument(InputDocument):
    """What the search may not change, and where its safe line is."""

    fixed: FlatChoices = FlatChoices()
    bounds: BoundsDocument = BoundsDocument()
    forbid: tuple[KnownTechnique, ...] = ()
    allow: tuple[KnownConsent, ...] = ()
    memory_fraction: MemoryFraction = Field(default=DEFAULT_MEMORY_FRACTION, description=SAFE_LINE)

    @model_validator(mode="after")
    def _fixed_lies_within_bounds(self) -> Self:
        """Refuse a choice that is fixed to what its own bounds rule out."""
        for word, (smallest, largest) in self.bounds.by_word().items():
            value = getattr(self.fixed, word)
            if value is not None and not smallest <= value <= largest:
                raise PydanticCustomError(
                    "bounds",
                    "fixes {word} to {value}, outside its bounds of {smallest} to {largest}",
                    {
                        "word": word,
                        "value": value,
                        "smallest": smallest,
                        "largest": largest,
                        "field": "fixed",
                    },
                )
        return self

    @model_validator(mode="after")
    def _forbidden_is_not_fixed(self) -> Self:
        """Refuse a choice that is fixed to what a forbidden technique does."""
        fixed = self._fixed()
        if Technique.OFFLOAD in self.forbid and any(fixed.get("offload", {}).values()):
            raise PydanticCustomError(
                "forbidden", "forbids offload, and fixes a share on the host", {"field": "forbid"}
            )
        for technique in self.forbid:
            word, without = WITHOUT.get(technique, ("", None))
            if fixed.get(word, without) != without:
                raise PydanticCustomError(
                    "forbidden",
                    "forbids {technique}, and {word} is fixed to {value}",
                    {"technique": str(technique), "word": word, "value": str(fixed[word]), "field": "forbid"},
                )
        return self

    def _fixed(self) -> dict[str, Any]:
        """Return what is fixed, each decision by its own word: a schedule is its name and its chunks."""
        fixed = self.fixed.chosen()
        schedule, recompute = self.fixed.schedule, self.fixed.recompute
        if schedule is not None:
            inner = schedule.model_fields_set - {"name"}
            fixed |= {"schedule": schedule.name} | {word: getattr(schedule, word) for word in inner}
        if recompute is not None and not recompute.modules:
            fixed["recompute"] = recompute.mode
        return fixed

    def to_constraints(self) -> Constraints:
        """Return the constraints that the document says; what is forbidden is fixed to being without it."""
        without = dict(WITHOUT[technique] for technique in self.forbid if technique in WITHOUT)
        return Constraints(
            fixed=self._fixed() | without,
            bounds=self.bounds.by_word(),
            forbid=tuple(map(str, self.forbid)),
            allow=tuple(map(str, self.allow)),
            memory_fraction=self.memory_fraction,
        )


class EvaluationConstraintsDocument(InputDocument):
    """Where the safe line of an evaluation is."""

    memory_fraction: MemoryFraction = Field(default=DEFAULT_MEMORY_FRACTION, description=SAFE_LINE)

    def to_constraints(self) -> Constraints:
        """Return the constraints that the document says."""
        return Constraints(memory_fraction=self.memory_fraction)
