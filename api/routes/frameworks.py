"""The training frameworks that a request may name."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query

from api.names import found
from api.schemas.catalogue import FrameworkListDocument, framework_document
from planner.frameworks import FRAMEWORKS, framework_by_name

router = APIRouter(prefix="/v1/frameworks", tags=["frameworks"])


@router.get("")
def read_frameworks() -> FrameworkListDocument:
    """List all frameworks with their traits."""
    return FrameworkListDocument(frameworks=tuple(map(framework_document, FRAMEWORKS.values())))


@router.get("/{name}")
def read_framework(
    name: str,
    version: Annotated[str | None, Query(description="A release of it; the newest that is known.")] = None,
) -> Mapping[str, Any]:
    """Show what a framework overlaps, keeps, supports and refuses, and its rules in words."""
    with found(name):
        return framework_document(framework_by_name(name, version=version, pointer=""))
