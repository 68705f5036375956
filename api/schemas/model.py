"""The model on the wire: a preset, a Hugging Face configuration, or the planner's own chain of layers."""

import json
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.document import EXPERIMENTAL, InputDocument, LayerCount, Name, refuse_text
from api.schemas.layers import LayerDocument
from planner.workload.chain import workload_from_layers
from planner.workload.chain_rules import at_another_depth
from planner.workload.huggingface import workload_from_config
from planner.workload.layers import Workload
from planner.workload.presets import preset_workload

MAX_RUNS = 10_000
"""Entries of a chain of layers; equal layers in a row are one entry."""


def _is_json(config: dict[str, Any]) -> dict[str, Any]:
    """Refuse what JSON does not have: NaN, infinities, half characters."""
    try:
        json.dumps(config, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:
        raise PydanticCustomError("json", "holds what JSON does not have: NaN or infinity") from error
    return config


Configuration = Annotated[dict[str, Any], AfterValidator(_is_json)]


class ModelDocument(InputDocument):
    """What is trained, in one of three forms; ``num_layers`` overrides its depth."""

    preset: Name | None = None
    huggingface: Configuration | None = Field(default=None, description="A config.json, whole.")
    layers: Annotated[tuple[LayerDocument, ...], Field(min_length=1, max_length=MAX_RUNS)] | None = Field(
        default=None, description="A chain of layers in execution order.", json_schema_extra=EXPERIMENTAL
    )
    num_layers: LayerCount | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_more_than_a_name(cls, value: object) -> object:
        """Refuse a name alone, with the object that has it."""
        return refuse_text(value, meant=lambda text: [{"preset": text}])

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        """Refuse several forms at once, and none."""
        forms = [form for form in ("preset", "huggingface", "layers") if getattr(self, form) is not None]
        if len(forms) != 1:
            raise PydanticCustomError(
                "model_form",
                "should have one of preset, huggingface and layers; has {forms}",
                {"forms": " and ".join(forms) or "none"},
            )
        return self

    def to_workload(self) -> Workload:
        """Return the model that the document says; InvalidRequest where nothing understands it."""
        workload = self._whole_workload()
        if self.num_layers is None:
            return workload
        return at_another_depth(workload, self.num_layers, pointer="/model/num_layers")

    def _whole_workload(self) -> Workload:
        if self.preset is not None:
            return preset_workload(self.preset)
        if self.huggingface is not None:
            return workload_from_config(self.huggingface)
        return workload_from_layers(
            {"layers": [layer.model_dump(mode="json") for layer in self.layers or ()]}
        )
