"""The flat words of a plan: its short form, and what constraints fix and bound."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.choices import (
    RecomputeDocument,
    ScheduleDocument,
    ShardingDocument,
    TierSharesDocument,
    ZeroStageNumber,
)
from api.schemas.document import (
    EXPERIMENTAL,
    DeviceCount,
    Flag,
    InputDocument,
    LayerCount,
    LayerIndex,
    Name,
    SampleCount,
)
from api.schemas.mesh import ExpertRankOrder, RankOrder, Scheme
from planner.strategy import Recompute, RecomputeMode, Schedule, ScheduleName, Sharding, ShortPlan


def _wrap(kinds: type | tuple[type, ...], *, field: str) -> Callable[[object], object]:
    """Return what takes a bare value of some kind for an object with that value in ``field``."""

    def wrap(value: object) -> object:
        return {field: value} if isinstance(value, kinds) else value

    return wrap


ShortSchedule = Annotated[
    ScheduleDocument,
    BeforeValidator(_wrap(str, field="name"), json_schema_input_type=ScheduleName | ScheduleDocument),
]
"""A schedule, or its name alone."""
ShortRecompute = Annotated[
    RecomputeDocument,
    BeforeValidator(_wrap(str, field="mode"), json_schema_input_type=RecomputeMode | RecomputeDocument),
]
"""A recomputation, or its mode alone."""
ShortShares = Annotated[
    TierSharesDocument,
    BeforeValidator(_wrap((int, float), field="cpu"), json_schema_input_type=float | TierSharesDocument),
]
"""Shares by tier, or the share on the host alone."""


class ShortOffloadDocument(InputDocument):
    """Shares of each state, of all layers alike, kept off the device."""

    optimizer: ShortShares = TierSharesDocument()
    parameters: ShortShares = TierSharesDocument()
    gradients: ShortShares = TierSharesDocument()
    activations: ShortShares = TierSharesDocument()

    def cpu_shares(self) -> dict[str, float]:
        """Return the share on the host of each state that the document names."""
        return {
            state: getattr(self, state).cpu
            for state in type(self).model_fields
            if state in self.model_fields_set
        }


class FlatChoices(InputDocument):
    """Choices of a plan by their flat words; what is left out, or null, is not chosen."""

    data_parallel: DeviceCount | None = None
    tensor_parallel: DeviceCount | None = None
    context_parallel: DeviceCount | None = None
    pipeline_parallel: DeviceCount | None = None
    expert_parallel: DeviceCount | None = None
    expert_tensor_parallel: DeviceCount | None = None
    sequence_parallel: Flag | None = None
    context_parallel_scheme: Scheme | None = None
    all_to_all_degree: DeviceCount | None = None
    rank_order: RankOrder | None = None
    expert_rank_order: ExpertRankOrder | None = None
    micro_batch_size: SampleCount | None = None
    num_micro_batches: SampleCount | None = None
    schedule: ShortSchedule | None = None
    virtual_stages: LayerCount | None = None
    interleave_group_size: SampleCount | None = None
    sharding: ShardingDocument | None = None
    zero_stage: ZeroStageNumber | None = None
    parameters: DeviceCount | None = Field(default=None, description="As in sharding.")
    gradients: DeviceCount | None = Field(default=None, description="As in sharding.")
    optimizer: DeviceCount | None = Field(default=None, description="As in sharding.")
    reshard_after_forward: Flag | None = None
    gather_dtype: Name | None = Field(default=None, json_schema_extra=EXPERIMENTAL)
    reduce_dtype: Name | None = Field(default=None, json_schema_extra=EXPERIMENTAL)
    experts: ShardingDocument | None = Field(default=None, json_schema_extra=EXPERIMENTAL)
    recompute: ShortRecompute | None = None
    layers_per_stage: tuple[LayerIndex, ...] | None = None
    node_group: Name | None = Field(
        default=None,
        description="The one node group that all stages sit on. A search on a cluster of several needs it; "
        "an evaluation without it puts stages on the groups in their order, as many as its devices hold.",
        json_schema_extra=EXPERIMENTAL,
    )
    offload: ShortOffloadDocument | None = Field(default=None, json_schema_extra=EXPERIMENTAL)

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        """Refuse a word that stands flat beside the object that has it too."""
        for whole in ("schedule", "sharding"):
            part = getattr(self, whole)
            for word in part.model_fields_set if part is not None else ():
                flat = getattr(self, word, None)
                if word != "name" and flat is not None and flat != getattr(part, word):
                    raise PydanticCustomError(
                        "said_twice",
                        "is {flat} here and {inner} in {whole}",
                        {"flat": flat, "inner": getattr(part, word), "whole": whole, "field": word},
                    )
        return self

    def said(self) -> dict[str, Any]:
        """Return as plain data what is chosen, and nothing that a framework's default would fill."""
        words = self.model_dump(mode="json", exclude_unset=True)
        return {word: value for word, value in words.items() if value is not None}

    def chosen(self) -> dict[str, Any]:
        """Return what is chosen, by word, as the domain has it."""
        return {
            word: _domain_value(value)
            for word in type(self).model_fields
            if (value := getattr(self, word)) is not None
        }


class ShortPlanDocument(FlatChoices):
    """A whole plan by its flat words.

    A degree that is left out is 1, data parallel what the devices leave; anything else is as the
    framework would take it.
    """

    @classmethod
    def from_plan(cls, plan: ShortPlan) -> Self:
        """Return the document of a short plan."""
        return cls.model_validate(
            {
                "tensor_parallel": plan.tensor_parallel,
                "pipeline_parallel": plan.pipeline_parallel,
                "context_parallel": plan.context_parallel,
                "expert_parallel": plan.expert_parallel,
                "data_parallel": plan.data_parallel,
                "virtual_stages": plan.virtual_stages,
                "micro_batch_size": plan.micro_batch_size,
                "zero_stage": plan.zero_stage,
                "sequence_parallel": plan.sequence_parallel,
                "schedule": _wire_value(plan.schedule),
                "sharding": _wire_value(plan.sharding),
                "recompute": _wire_value(plan.recompute),
                "layers_per_stage": plan.layers_per_stage,
                "node_group": plan.node_group,
                "offload": dict(plan.offload) or None,
            }
            | {word: _wire_value(value) for word, value in plan.extra.items()}
        )

    def to_plan(self) -> ShortPlan:
        """Return the short plan that the document says."""
        chosen = self.chosen()
        return ShortPlan(
            tensor_parallel=chosen.pop("tensor_parallel", 1),
            pipeline_parallel=chosen.pop("pipeline_parallel", 1),
            context_parallel=chosen.pop("context_parallel", 1),
            expert_parallel=chosen.pop("expert_parallel", 1),
            data_parallel=chosen.pop("data_parallel", None),
            micro_batch_size=chosen.pop("micro_batch_size", 1),
            virtual_stages=chosen.pop("virtual_stages", _said(self.schedule, "virtual_stages")),
            zero_stage=chosen.pop("zero_stage", _said(self.sharding, "zero_stage")),
            sequence_parallel=chosen.pop("sequence_parallel", None),
            schedule=self._schedule(chosen.pop("schedule", None)),
            sharding=chosen.pop("sharding", None),
            recompute=chosen.pop("recompute", None),
            layers_per_stage=chosen.pop("layers_per_stage", None),
            node_group=chosen.pop("node_group", None),
            offload=chosen.pop("offload", {}),
            extra=chosen,
        )

    def _schedule(self, schedule: Schedule | None) -> Schedule | None:
        """Return the schedule with what stands flat beside it."""
        if schedule is None:
            return None
        return replace(
            schedule,
            virtual_stages=self.virtual_stages or schedule.virtual_stages,
            interleave_group_size=self.interleave_group_size or schedule.interleave_group_size,
        )


def _said(part: InputDocument | None, word: str) -> Any:  # noqa: ANN401 - the value of any field
    """Return a field that a document sets itself, None where it has its default."""
    return getattr(part, word) if part is not None and word in part.model_fields_set else None


def _domain_value(value: object) -> object:
    """Return a value of the wire as the domain has it."""
    match value:
        case ScheduleDocument():
            return value.to_schedule()
        case ShardingDocument():
            return value.to_sharding()
        case RecomputeDocument():
            return value.to_recompute()
        case ShortOffloadDocument():
            return value.cpu_shares()
    return value


def _wire_value(value: object) -> object:
    """Return a value of the domain as the wire has it."""
    match value:
        case Schedule(name=name):
            return {"name": name, "interleave_group_size": value.interleave_group_size}
        case Sharding():
            return ShardingDocument.from_sharding(value)
        case Recompute():
            return RecomputeDocument.from_recompute(value)
    return value
