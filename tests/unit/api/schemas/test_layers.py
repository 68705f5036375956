"""Documents of layers have the fields of the layers."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import get_args

import pytest
from pydantic import BaseModel, TypeAdapter

from api.schemas.branches import BranchDocument
from api.schemas.layers import LayerDocument, StreamDocument, TracedDocument, VolumeDocument
from api.schemas.model import ModelDocument
from api.schemas.parts import PartDocument
from planner.workload.chain import LAYERS, layers_document
from planner.workload.huggingface import FAMILIES, workload_from_config
from planner.workload.layer_fields import BRANCHES, OPERATORS, PARTS, STREAMS
from planner.workload.presets import preset_names, preset_workload
from planner.workload.streams import JOB
from planner.workload.traced import EMPTY, Volume


def documents(union: object, key: str) -> Mapping[str, type[BaseModel]]:
    """Return the documents of a union by the word under ``key`` that tells them apart."""
    members: tuple[type[BaseModel], ...] = get_args(get_args(union)[0])
    return {get_args(member.model_fields[key].annotation)[0]: member for member in members}


LAYER_DOCUMENTS = documents(LayerDocument, "kind")
DESCRIBED: list[tuple[type[object], type[BaseModel]]] = [
    *((LAYERS[kind], LAYER_DOCUMENTS[kind]) for kind in sorted(LAYERS)),
    *((BRANCHES[kind], documents(BranchDocument, "type")[kind]) for kind in sorted(BRANCHES)),
    *((PARTS[kind], documents(PartDocument, "type")[kind]) for kind in sorted(PARTS)),
    *((STREAMS[kind], documents(StreamDocument, "type")[kind]) for kind in sorted(STREAMS)),
    *((OPERATORS[kind], documents(TracedDocument, "type")[kind]) for kind in sorted(OPERATORS)),
    (Volume, VolumeDocument),
]


def test_every_kind_of_layer_has_a_document() -> None:
    assert LAYER_DOCUMENTS.keys() == LAYERS.keys()
    assert documents(BranchDocument, "type").keys() == BRANCHES.keys()
    assert documents(PartDocument, "type").keys() == PARTS.keys()
    assert documents(StreamDocument, "type").keys() == STREAMS.keys()
    assert documents(TracedDocument, "type").keys() == OPERATORS.keys()
    schema = TypeAdapter(LayerDocument).json_schema()
    assert schema["discriminator"]["mapping"].keys() == LAYERS.keys()


@pytest.mark.parametrize(("thing", "document"), DESCRIBED, ids=lambda part: part.__name__)
def test_documents_have_the_fields_and_defaults_of_what_they_describe(
    thing: type[object], document: type[BaseModel]
) -> None:
    own = {
        field.name: None if field.default in (JOB, EMPTY) else field.default
        for field in fields(thing)  # type: ignore[arg-type]  # every one is a dataclass
    }
    written = {
        name: MISSING if field.is_required() else field.default
        for name, field in document.model_fields.items()
        if name not in {"kind", "count", "type"} - own.keys()
    }
    assert written == own


@pytest.mark.parametrize("name", preset_names())
def test_the_chain_of_a_preset_is_the_same_model(name: str) -> None:
    workload = preset_workload(name)
    read = ModelDocument.model_validate(layers_document(workload)).to_workload()
    assert read.runs == workload.runs


@pytest.mark.parametrize("family", FAMILIES)
def test_the_chain_of_a_family_is_the_same_model(family: str) -> None:
    workload = workload_from_config({"model_type": family})
    read = ModelDocument.model_validate(layers_document(workload)).to_workload()
    assert read.runs == workload.runs
