"""The training frameworks that a request may name."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from api.names import found
from api.schemas.catalogue import FrameworkListDocument, framework_document
from planner.frameworks import FRAMEWORKS, framework_by_name

router = APIRouter(prefix="/v1/frameworks", tags=["frameworks"])


@router.get("")
def read_frameworks() -> FrameworkListDocument:
    """List all frameworks with their traits."""
    return FrameworkListDocument(frameworks=tuple(map(framework_document, FRAMEWORKS.values())))


@router.get("/{name}")
def read_framework(name: str) -> Mapping[str, Any]:
    """Show what a framework overlaps, keeps, supports and refuses."""
    with found(name):
        return framework_document(framework_by_name(name, pointer="/name"))
