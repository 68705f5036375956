"""What to measure: the list of shapes that the planner wants, read and checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from planner.workload.operators import Collective, Phase

FORMAT = "meshplan-shapes/1"

Shape = Mapping[str, int]
_Member = TypeVar("_Member", bound=StrEnum)


class ShapesRefused(ValueError):  # noqa: N818 - reads as what happened
    """A list of shapes that cannot be read: the JSON pointer at fault and what is wrong there."""

    def __init__(self, message: str, *, pointer: str) -> None:
        """Keep the JSON pointer beside the message."""
        super().__init__(f"{pointer or '/'}: {message}")
        self.pointer = pointer


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelShape:
    """One kernel to measure: an operator by its name, in one phase, at one local shape.

    A matrix product of a gradient is a product of its own, C[m, n] = A[m, k] B[k, n] with its own
    m, n and k: for a forward product of m x n x k its input gradient is m x k x n, its weight
    gradient n x k x m.
    """

    operator: str
    dtype: str
    phase: Phase
    shape: Shape

    def __str__(self) -> str:
        """Return the kernel for people, on one line."""
        dims = " ".join(f"{name}={size}" for name, size in self.shape.items())
        return f"{self.operator} {self.phase} {self.dtype} {dims}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveShape:
    """One collective to measure between ``world_size`` ranks; the payload counted as nccl-tests do."""

    operation: Collective
    world_size: int
    payload_bytes: int

    def __str__(self) -> str:
        """Return the collective for people, on one line."""
        return f"{self.operation} of {self.payload_bytes} B, {self.world_size} ranks"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shapes:
    """What is to be measured, most wanted first in each list."""

    kernels: tuple[KernelShape, ...] = ()
    collectives: tuple[CollectiveShape, ...] = ()

    def interleaved(self) -> list[KernelShape | CollectiveShape]:
        """Return both lists merged evenly, so that a time limit cuts both at the same share."""
        placed: list[tuple[float, KernelShape | CollectiveShape]] = []
        placed += [((index + 1) / len(self.kernels), item) for index, item in enumerate(self.kernels)]
        placed += [((index + 1) / len(self.collectives), item) for index, item in enumerate(self.collectives)]
        return [item for _, item in sorted(placed, key=lambda pair: pair[0])]


def read_shapes(path: Path) -> Shapes:
    """Return the shapes of a file; raise `ShapesRefused` where it is not what it should be."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise ShapesRefused(f"cannot read {path}: {error.strerror}", pointer="") from error
    except ValueError as error:
        raise ShapesRefused(f"{path} is no JSON: {error}", pointer="") from error
    return shapes_from_document(document)


def shapes_from_document(document: object) -> Shapes:
    """Return the shapes of a document in the format `FORMAT`; fields not known here are ignored."""
    fields = _mapping(document, pointer="")
    if fields.get("format") != FORMAT:
        raise ShapesRefused(f"must be {FORMAT!r}, is {fields.get('format')!r}", pointer="/format")
    kernels, collectives = _list(fields, "kernels"), _list(fields, "collectives")
    return Shapes(
        kernels=tuple(_kernel(item, pointer=f"/kernels/{i}") for i, item in enumerate(kernels)),
        collectives=tuple(
            _collective(item, pointer=f"/collectives/{i}") for i, item in enumerate(collectives)
        ),
    )


def _kernel(item: object, *, pointer: str) -> KernelShape:
    fields = _mapping(item, pointer=pointer)
    sizes = _mapping(fields.get("shape"), pointer=f"{pointer}/shape")
    return KernelShape(
        operator=_text(fields, "operator", pointer=pointer),
        dtype=_text(fields, "dtype", pointer=pointer),
        phase=_member(Phase, fields, "phase", pointer=pointer),
        shape={name: _size(sizes, name, pointer=f"{pointer}/shape", least=0) for name in sizes},
    )


def _collective(item: object, *, pointer: str) -> CollectiveShape:
    fields = _mapping(item, pointer=pointer)
    return CollectiveShape(
        operation=_member(Collective, fields, "operation", pointer=pointer),
        world_size=_size(fields, "world_size", pointer=pointer, least=2),
        payload_bytes=_size(fields, "payload_bytes", pointer=pointer, least=1),
    )


def _mapping(value: object, *, pointer: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ShapesRefused(f"must be an object, is {value!r:.60}", pointer=pointer)
    return value


def _list(fields: Mapping[str, Any], name: str) -> Sequence[object]:
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise ShapesRefused(f"must be a list, is {value!r:.60}", pointer=f"/{name}")
    return value


def _text(fields: Mapping[str, Any], name: str, *, pointer: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ShapesRefused(f"must be a name, is {value!r:.60}", pointer=f"{pointer}/{name}")
    return value


def _member(kind: type[_Member], fields: Mapping[str, Any], name: str, *, pointer: str) -> _Member:
    text = _text(fields, name, pointer=pointer)
    if text not in set(kind):
        raise ShapesRefused(f"must be one of {', '.join(kind)}, is {text!r:.60}", pointer=f"{pointer}/{name}")
    return kind(text)


def _size(fields: Mapping[str, Any], name: str, *, pointer: str, least: int) -> int:
    """Return a whole number; true and false count as 1 and 0, since a mask is causal or not."""
    value = fields.get(name)
    if not isinstance(value, int) or value < least:
        raise ShapesRefused(
            f"must be a whole number from {least}, is {value!r:.60}", pointer=f"{pointer}/{name}"
        )
    return int(value)
