"""What the service answers over HTTP, for people: read off its own OpenAPI document."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One verb of one path."""

    method: str
    path: str
    summary: str
    description: str


def operations(openapi: Mapping[str, Any]) -> tuple[Operation, ...]:
    """Return what an OpenAPI document offers, in its order."""
    return tuple(_operations(openapi))


def _operations(openapi: Mapping[str, Any]) -> Iterator[Operation]:
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            yield Operation(
                method=method.upper(),
                path=path,
                summary=operation.get("summary", ""),
                description=operation.get("description", "").replace("``", ""),
            )
