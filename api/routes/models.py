"""The models that a request may name."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.catalogue import list_models, show_model
from api.names import found
from api.schemas.catalogue import ModelListDocument, ModelSummaryDocument
from planner.workload.presets import preset_workload

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("")
def read_models() -> ModelListDocument:
    """List all models."""
    return ModelListDocument(models=list_models())


@router.get("/{name:path}")
def read_model(
    name: str, sequence_length: Annotated[int | None, Query(ge=1, le=10**8)] = None
) -> ModelSummaryDocument:
    """Show what a model consists of, at a sequence length or at its own."""
    with found(name):
        return show_model(preset_workload(name), sequence_length=sequence_length)
