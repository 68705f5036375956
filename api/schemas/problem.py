"""What went wrong, on the wire: ``application/problem+json``, with the field at fault."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Self

from pydantic import Field

from api.schemas.document import OutputDocument
from planner.errors import InvalidRequest

MEDIA_TYPE = "application/problem+json"


class FaultDocument(OutputDocument):
    """One field at fault."""

    pointer: str = Field(description="JSON pointer into the request.")
    detail: str
    nearest_legal: tuple[Any, ...] = Field(default=(), description="What would be legal, nearest first.")


class ProblemDocument(OutputDocument):
    """A request that was not answered, and why."""

    type: str = "about:blank"
    title: str
    status: int = Field(description="The HTTP status.")
    detail: str
    instance: str | None = Field(default=None, description="The path that was asked.")
    pointer: str | None = Field(default=None, description="JSON pointer of the field at fault.")
    nearest_legal: tuple[Any, ...] = Field(default=(), description="What would be legal, nearest first.")
    request_id: str | None = Field(default=None, description="As in the header X-Request-Id and in the log.")
    errors: tuple[FaultDocument, ...] = Field(default=(), description="Every field at fault.")

    @classmethod
    def of_status(cls, status: HTTPStatus, detail: str) -> Self:
        """Return a problem that no field is at fault for."""
        return cls(title=status.phrase, status=status, detail=detail)

    @classmethod
    def of_faults(cls, faults: Sequence[FaultDocument]) -> Self:
        """Return the problem of a request with these fields at fault, one at the least."""
        first = faults[0]
        return cls(
            title="Invalid request",
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
            detail=f"{first.pointer or 'the document'}: {first.detail}",
            pointer=first.pointer,
            nearest_legal=first.nearest_legal,
            errors=tuple(faults),
        )

    @classmethod
    def of_invalid_request(cls, error: InvalidRequest) -> Self:
        """Return the problem of a request that the planner refuses."""
        nearest = tuple(error.nearest_legal)
        return cls.of_faults(
            [FaultDocument(pointer=error.pointer, detail=error.message, nearest_legal=nearest)]
        )
