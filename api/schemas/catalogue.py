"""What can be named in a request, on the wire: models, clusters, devices, profiles, frameworks."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

from pydantic import Field
from pydantic_core import to_jsonable_python

from api.schemas.cluster import ClusterDocument
from api.schemas.document import EXPERIMENTAL, OutputDocument
from planner.framework import Framework
from planner.framework_rules import rule_table
from planner.grains import decision_grains
from planner.workload.summary import LayerSummary, ModelSummary


class LayerSummaryDocument(OutputDocument):
    """``count`` equal layers in a row; the figures are those of one of them."""

    kind: str
    count: int
    parameters: int
    forward_flops_per_sample: float | None
    forward_flops_per_token: float | None

    @classmethod
    def from_summary(cls, layer: LayerSummary) -> Self:
        """Return the document of a summary."""
        return cls(
            kind=layer.kind,
            count=layer.count,
            parameters=layer.parameters,
            forward_flops_per_sample=layer.forward_flops_per_sample,
            forward_flops_per_token=layer.forward_flops_per_token,
        )


class ModelSummaryDocument(OutputDocument):
    """What a model consists of."""

    name: str
    family: str
    parameters: int
    active_parameters: int
    layers: tuple[LayerSummaryDocument, ...]
    not_understood: tuple[str, ...] = Field(description="Keys of its configuration that were not understood.")

    @classmethod
    def from_summary(cls, model: ModelSummary) -> Self:
        """Return the document of a summary."""
        return cls(
            name=model.name,
            family=model.family,
            parameters=model.parameters,
            active_parameters=model.active_parameters,
            layers=tuple(map(LayerSummaryDocument.from_summary, model.layers)),
            not_understood=model.not_understood,
        )


class ModelEntryDocument(OutputDocument):
    """A model of the list."""

    name: str
    family: str
    parameters: int


class ModelListDocument(OutputDocument):
    """All models that a request may name."""

    models: tuple[ModelEntryDocument, ...]


class ClusterEntryDocument(OutputDocument):
    """A cluster of the list."""

    name: str
    title: str
    device: str
    devices_per_node: int
    is_measured: bool = Field(
        description="Made of a machine that was profiled.", json_schema_extra=EXPERIMENTAL
    )


class ClusterListDocument(OutputDocument):
    """All clusters that a request may name."""

    clusters: tuple[ClusterEntryDocument, ...]


class NamedClusterDocument(OutputDocument):
    """A cluster with some number of devices, spelled out."""

    name: str
    num_devices: int
    cluster: ClusterDocument = Field(description="As a request may say it.")
    sources: tuple[str, ...] = Field(description="Where its figures come from.")


class DeviceListDocument(OutputDocument):
    """All devices that a cluster may be of."""

    devices: tuple[dict[str, Any], ...]


class ProfileSummaryDocument(OutputDocument):
    """What a profile is, without its measurements."""

    name: str
    device: str
    digest: str
    built_in: bool
    created_at: datetime
    software: dict[str, Any]
    facts: dict[str, Any] = Field(json_schema_extra=EXPERIMENTAL)
    source: str | None
    licence: str | None
    num_kernels: int
    num_collectives: int
    num_transfers: int


class ProfileListDocument(OutputDocument):
    """All profiles that a request may name."""

    profiles: tuple[ProfileSummaryDocument, ...]


class RefusedRowDocument(OutputDocument):
    """A measurement that was not taken, and why."""

    pointer: str
    detail: str


class StoredProfileDocument(OutputDocument):
    """What became of a profile that was sent."""

    name: str
    device: str
    digest: str
    is_new: bool = Field(description="False where the same measurements were there already.")
    num_accepted: int
    num_refused: int
    refused: tuple[RefusedRowDocument, ...] = Field(description="The first of them.")


class FrameworkListDocument(OutputDocument):
    """All frameworks that a request may name."""

    frameworks: tuple[dict[str, Any], ...] = Field(json_schema_extra=EXPERIMENTAL)


def framework_document(framework: Framework) -> Mapping[str, Any]:
    """Return the traits of a framework as plain data, the grain of each decision, and its rules in words."""
    document: Mapping[str, Any] = to_jsonable_python(framework)
    rules = [
        {"name": entry.name, "holds": entry.words, "otherwise": entry.outcome.value}
        for entry in rule_table(framework)
    ]
    return {**document, "grains": dict(decision_grains(framework)), "rules": rules}
