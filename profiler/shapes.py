"""What to measure: the list of shapes that the planner wants, read and checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from planner.workload.operators import Collective, Phase

FORMAT = "meshplan-shapes/1"

Shape = Mapping[str, int]
_Member = TypeVar("_Member", bound=StrEnum)
_Read_co = TypeVar("_Read_co", covariant=True)


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
    """One collective to measure between ``world_size`` ranks; the payload counted as nccl-tests do.

    ``ranks_per_node`` of them share a node, None for as many as a node has. ``groups`` of so many ranks
    each run it at the same time.
    """

    operation: Collective
    world_size: int
    payload_bytes: int
    ranks_per_node: int | None = None
    groups: int = 1

    @property
    def is_alone(self) -> bool:
        """Whether one group runs it while all others are silent."""
        return self.groups == 1

    def __str__(self) -> str:
        """Return the collective for people, on one line."""
        spread = f", {self.ranks_per_node} per node" if self.ranks_per_node else ""
        together = "" if self.is_alone else f", {self.groups} groups at once"
        return f"{self.operation} of {self.payload_bytes} B, {self.world_size} ranks{spread}{together}"


@dataclass(frozen=True, kw_only=True, slots=True)
class OverlapShape:
    """A collective while the same ranks run a kernel, again and again: what each costs the other."""

    collective: CollectiveShape
    kernel: KernelShape

    def __str__(self) -> str:
        """Return both for people, on one line."""
        return f"{self.collective} behind {self.kernel}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferShape:
    """A copy between two tiers of memory, or work of the host, to measure: how many bytes it moves."""

    operation: str
    payload_bytes: int

    def __str__(self) -> str:
        """Return the transfer for people, on one line."""
        return f"{self.operation} of {self.payload_bytes} B"


Wanted = KernelShape | CollectiveShape | OverlapShape | TransferShape


@dataclass(frozen=True, kw_only=True, slots=True)
class Shapes:
    """What is to be measured, most wanted first in each list."""

    kernels: tuple[KernelShape, ...] = ()
    collectives: tuple[CollectiveShape, ...] = ()
    overlaps: tuple[OverlapShape, ...] = ()
    transfers: tuple[TransferShape, ...] = ()

    def interleaved(self) -> list[Wanted]:
        """Return all lists merged evenly, so that a time limit cuts all at the same share."""
        lists: tuple[tuple[Wanted, ...], ...] = (
            self.kernels,
            self.collectives,
            self.overlaps,
            self.transfers,
        )
        placed = [((index + 1) / len(items), item) for items in lists for index, item in enumerate(items)]
        return [item for _, item in sorted(placed, key=lambda pair: pair[0])]

    def all_collectives(self) -> list[CollectiveShape]:
        """Return every collective, those of overlaps too."""
        return [*self.collectives, *(overlap.collective for overlap in self.overlaps)]


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
    return Shapes(
        kernels=_each(fields, "kernels", _kernel),
        collectives=_each(fields, "collectives", _collective),
        overlaps=_each(fields, "overlaps", _overlap),
        transfers=_each(fields, "transfers", _transfer),
    )


class _Reader(Protocol[_Read_co]):
    def __call__(self, item: object, *, pointer: str) -> _Read_co: ...


def _each(fields: Mapping[str, Any], name: str, read: _Reader[_Read_co]) -> tuple[_Read_co, ...]:
    return tuple(read(item, pointer=f"/{name}/{i}") for i, item in enumerate(_list(fields, name)))


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
        ranks_per_node=_size(fields, "ranks_per_node", pointer=pointer, least=1)
        if fields.get("ranks_per_node") is not None
        else None,
        groups=_size(fields, "groups", pointer=pointer, least=1) if "groups" in fields else 1,
    )


def _overlap(item: object, *, pointer: str) -> OverlapShape:
    fields = _mapping(item, pointer=pointer)
    return OverlapShape(
        collective=_collective(fields.get("collective"), pointer=f"{pointer}/collective"),
        kernel=_kernel(fields.get("kernel"), pointer=f"{pointer}/kernel"),
    )


def _transfer(item: object, *, pointer: str) -> TransferShape:
    fields = _mapping(item, pointer=pointer)
    return TransferShape(
        operation=_text(fields, "operation", pointer=pointer),
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


def document_of(wanted: Wanted) -> dict[str, Any]:
    """Return something wanted as lists of shapes and profiles say it; what is default is left out."""
    match wanted:
        case KernelShape():
            names = {"operator": wanted.operator, "dtype": wanted.dtype, "phase": wanted.phase.value}
            return {**names, "shape": dict(wanted.shape)}
        case CollectiveShape():
            sizes = {"world_size": wanted.world_size, "payload_bytes": wanted.payload_bytes}
            spread = {} if wanted.ranks_per_node is None else {"ranks_per_node": wanted.ranks_per_node}
            groups = {} if wanted.is_alone else {"groups": wanted.groups}
            return {"operation": wanted.operation.value, **sizes, **spread, **groups}
        case OverlapShape():
            return {"collective": document_of(wanted.collective), "kernel": document_of(wanted.kernel)}
        case TransferShape():
            return {"operation": wanted.operation, "payload_bytes": wanted.payload_bytes}


def list_of(wanted: Wanted) -> str:
    """Return the list of a document that something wanted stands in."""
    names = {KernelShape: "kernels", CollectiveShape: "collectives", OverlapShape: "overlaps"}
    return names.get(type(wanted), "transfers")


def key_of(wanted: Wanted) -> str:
    """Return a text that is the same for the same thing wanted, however its sizes are ordered."""
    return json.dumps([list_of(wanted), document_of(wanted)], sort_keys=True)
