"""The fields of layers, branches and streams in a chain document, both ways.

A field with fields of its own is an object whose ``type`` names what it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, Final, TypeVar

from planner.errors import InvalidRequest, UnknownName
from planner.names import nearest_names
from planner.workload.block import Arrangement, BlockLayer
from planner.workload.branches import Branch
from planner.workload.convolution import Convolution, Part
from planner.workload.cross_attention import CrossAttention
from planner.workload.delta_net import GatedDeltaNet
from planner.workload.experts import Experts
from planner.workload.feature_map import Activation
from planner.workload.image_pools import WindowPool
from planner.workload.latent_attention import LatentAttention
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.retention import Retention
from planner.workload.selective_scan import SelectiveScan
from planner.workload.self_attention import SelfAttention
from planner.workload.sizes import UnfitValue, shown
from planner.workload.squeeze_excite import SqueezeExcite
from planner.workload.state_space import StateSpace
from planner.workload.streams import JOB, ImageStream, Stream, TextStream, VectorStream
from planner.workload.traced import (
    EMPTY,
    SampleDim,
    TracedAttention,
    TracedOperator,
    TracedPass,
    TracedProduct,
    Volume,
)

Thing = TypeVar("Thing")

BRANCHES: Final[Mapping[str, type[Branch]]] = {
    "attention": SelfAttention,
    "cross_attention": CrossAttention,
    "latent_attention": LatentAttention,
    "delta_net": GatedDeltaNet,
    "selective_scan": SelectiveScan,
    "state_space": StateSpace,
    "retention": Retention,
    "mlp": Mlp,
    "experts": Experts,
}
"""The branch of each type."""

PARTS: Final[Mapping[str, type[Part]]] = {
    "convolution": Convolution,
    "squeeze_excite": SqueezeExcite,
    "pool": WindowPool,
}
"""The part of a convolutional layer of each type."""

STREAMS: Final[Mapping[str, type[Stream]]] = {
    "text": TextStream,
    "images": ImageStream,
    "vectors": VectorStream,
}
"""The stream of each type."""

OPERATORS: Final[Mapping[str, type[TracedOperator]]] = {
    "product": TracedProduct,
    "attention_core": TracedAttention,
    "pass": TracedPass,
}
"""The traced operator of each type."""


def read_fields(thing: type[Thing], given: Mapping[str, object], *, what: str, pointer: str) -> Thing:
    """Return the thing that has the given fields; ``what`` is how a message calls it.

    Raises UnknownName for a field that it does not have and InvalidRequest for one that is missing or
    has a value that it cannot have, with the JSON pointer of the field.
    """
    known = {field.name: field.default is MISSING for field in fields(thing)}  # type: ignore[arg-type]  # a dataclass
    for key in given:
        if key not in known:
            raise UnknownName(
                f"{what} has no field {shown(key)}",
                pointer=f"{pointer}/{_escaped(key)}",
                nearest_legal=nearest_names(key, known),
            )
    for key, is_required in known.items():
        if is_required and key not in given:
            raise InvalidRequest(f"{what} needs {key}", pointer=f"{pointer}/{key}")
    values = {key: _read(key, value, pointer=f"{pointer}/{key}") for key, value in given.items()}
    try:
        return thing(**values)
    except UnfitValue as error:
        raise InvalidRequest(str(error), pointer=f"{pointer}/{error.name}") from error


def written_fields(thing: object) -> dict[str, object]:
    """Return a thing's fields as a document has them; ``read_fields`` reads them back."""
    return {field.name: _written(getattr(thing, field.name)) for field in fields(thing)}  # type: ignore[arg-type]  # a dataclass


def _written(value: object) -> object:
    if value in (JOB, EMPTY):
        return None
    if isinstance(value, tuple):
        return [_written(part) for part in value]
    if isinstance(value, BlockLayer | Volume):
        return written_fields(value)
    for name, thing in {**BRANCHES, **PARTS, **STREAMS, **OPERATORS}.items():
        if type(value) is thing:
            return {"type": name, **written_fields(value)}
    return value


def _read(key: str, value: object, *, pointer: str) -> Any:  # noqa: ANN401 - the field checks what it gets
    read = READERS.get(key)
    return value if read is None else read(value, pointer)


def _norm(value: object, pointer: str) -> Norm | None:
    return None if value is None else _word(Norm, value, pointer)


def _word(words: type[StrEnum], value: object, pointer: str) -> Any:  # noqa: ANN401 - one of the words
    if not isinstance(value, str) or value not in set(words):
        name = pointer.rsplit("/", 1)[-1]
        raise InvalidRequest(
            f"{name} ({shown(value)}) is not known", pointer=pointer, nearest_legal=tuple(words)
        )
    return words(value)


def _branches(value: object, pointer: str) -> tuple[Branch, ...]:
    return tuple(
        _typed(BRANCHES, branch, what="branch", pointer=f"{pointer}/{place}")
        for place, branch in enumerate(_list(value, pointer))
    )


def _parts(value: object, pointer: str) -> tuple[Part, ...]:
    return tuple(
        _typed(PARTS, part, what="part", pointer=f"{pointer}/{place}")
        for place, part in enumerate(_list(value, pointer))
    )


def _shortcut(value: object, pointer: str) -> Convolution | None:
    known = {"convolution": Convolution}
    return None if value is None else _typed(known, value, what="shortcut", pointer=pointer)


def _operators(value: object, pointer: str) -> tuple[TracedOperator, ...]:
    return tuple(
        _typed(OPERATORS, operator, what="traced operator", pointer=f"{pointer}/{place}")
        for place, operator in enumerate(_list(value, pointer))
    )


def _list(value: object, pointer: str) -> Sequence[object]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        name = pointer.rsplit("/", 1)[-1]
        raise InvalidRequest(f"{name} ({shown(value)}) must be a list", pointer=pointer)
    return value


def _stream(value: object, pointer: str) -> Stream:
    return JOB if value is None else _typed(STREAMS, value, what="stream", pointer=pointer)


def _typed(known: Mapping[str, type[Thing]], value: object, *, what: str, pointer: str) -> Thing:
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"a {what} must be an object, not {shown(value)}", pointer=pointer)
    name = value.get("type")
    if not isinstance(name, str) or name not in known:
        nearest = nearest_names(name, known) if isinstance(name, str) else sorted(known)
        message = f"no {what} is of type {shown(name)}"
        raise UnknownName(message, pointer=f"{pointer}/type", nearest_legal=nearest)
    given = {key: field for key, field in value.items() if key != "type"}
    return read_fields(known[name], given, what=f"a {what} of type {name}", pointer=pointer)


def _escaped(key: str) -> str:
    """Return a key as a JSON pointer spells it (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _block(value: object, pointer: str) -> BlockLayer:
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"a block must be an object, not {shown(value)}", pointer=pointer)
    return read_fields(BlockLayer, value, what="a block", pointer=pointer)


def _numbers(value: object, pointer: str) -> tuple[object, ...]:
    return tuple(_list(value, pointer))


def _volume(value: object, pointer: str) -> Volume:
    if value is None:
        return EMPTY
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"a volume must be an object, not {shown(value)}", pointer=pointer)
    return read_fields(Volume, value, what="a volume", pointer=pointer)


READERS: Final[Mapping[str, Callable[[object, str], object]]] = {
    "norm": _norm,
    "output_norm": _norm,
    "widths": _numbers,
    "table_rows": _numbers,
    "parts": _parts,
    "shortcut": _shortcut,
    "activation": lambda value, pointer: _word(Activation, value, pointer),
    "arrangement": lambda value, pointer: _word(Arrangement, value, pointer),
    "branches": _branches,
    "block": _block,
    "stream": _stream,
    "operators_of_sample": _operators,
    "grows": lambda value, pointer: _word(SampleDim, value, pointer),
    **dict.fromkeys(("output", "saved_input", "other_input", "saved", "forward", "backward"), _volume),
}
"""How to read the fields that are no plain numbers or switches."""
