"""Where the flat words of a plan stand in its full form."""

from collections.abc import Mapping
from typing import Final

from api.schemas.choices import BatchDocument, ScheduleDocument, ShardingDocument
from api.schemas.document import InputDocument
from api.schemas.mesh import MeshDocument

PARTS: Final[Mapping[str, type[InputDocument]]] = {
    "mesh": MeshDocument,
    "batch": BatchDocument,
    "schedule": ScheduleDocument,
    "sharding": ShardingDocument,
}
"""The objects of the full form whose fields are words of the flat one."""
RENAMED: Final[Mapping[str, str]] = {
    "/plan/schedule": "/plan/schedule/name",
    "/plan/recompute": "/plan/stages",
}


def pointer_in_full_form(pointer: str) -> str:
    """Return the pointer of a flat word of a plan as it is in the full form; others stay as they are."""
    word = pointer.removeprefix("/plan/")
    for part, schema in PARTS.items():
        if word in schema.model_fields:
            return f"/plan/{part}/{word}"
    return RENAMED.get(pointer, pointer)
