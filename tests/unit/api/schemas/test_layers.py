"""Documents of layers have the fields of the layers."""

from collections.abc import Mapping
from dataclasses import MISSING, fields

import pytest
from pydantic import TypeAdapter

from api.schemas.document import InputDocument
from api.schemas.layers import (
    DecoderLayerDocument,
    EmbeddingLayerDocument,
    HeadLayerDocument,
    LayerDocument,
    NormLayerDocument,
)
from api.schemas.model import ModelDocument
from planner.workload.chain import LAYERS, layers_document
from planner.workload.presets import preset_names, preset_workload

DOCUMENTS: Mapping[str, type[InputDocument]] = {
    "embedding": EmbeddingLayerDocument,
    "decoder": DecoderLayerDocument,
    "norm": NormLayerDocument,
    "head": HeadLayerDocument,
}


def test_every_kind_of_layer_has_a_document() -> None:
    assert DOCUMENTS.keys() == LAYERS.keys()
    schema = TypeAdapter(LayerDocument).json_schema()
    assert schema["discriminator"]["mapping"].keys() == LAYERS.keys()


@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_documents_have_the_fields_and_defaults_of_the_layer(kind: str) -> None:
    layer = {field.name: field.default for field in fields(LAYERS[kind])}
    document = {
        name: MISSING if field.is_required() else field.default
        for name, field in DOCUMENTS[kind].model_fields.items()
        if name not in {"kind", "count"}
    }
    assert document == layer


@pytest.mark.parametrize("name", preset_names())
def test_the_chain_of_a_preset_is_the_same_model(name: str) -> None:
    workload = preset_workload(name)
    read = ModelDocument.model_validate(layers_document(workload)).to_workload()
    assert read.runs == workload.runs
