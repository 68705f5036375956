"""What all documents share: strict fields, bounded numbers, each field marked stable or experimental."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from planner.names import nearest_names

STABILITY: Final = "x-stability"
"""The key under which the schema of a field says whether its meaning may still change."""
STABLE: Final = "stable"
EXPERIMENTAL: Final[dict[str, Any]] = {STABILITY: "experimental"}
"""``json_schema_extra`` of a field that may change from one release to the next."""


MAX_TEXT: Final = 200
"""Characters of any text in a request."""


def mark_stability(schema: dict[str, Any]) -> None:
    """Mark every field of a schema as stable that is not marked already."""
    for field in schema.get("properties", {}).values():
        field.setdefault(STABILITY, STABLE)


class InputDocument(BaseModel):
    """A document that callers write: a field that it does not have is refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        str_max_length=MAX_TEXT,
        json_schema_extra=mark_stability,
        protected_namespaces=(),
    )


class OutputDocument(BaseModel):
    """A document that the service writes: readers tolerate fields that they do not know."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, json_schema_extra=mark_stability, protected_namespaces=()
    )


def _number(value: object) -> object:
    """Refuse what is no number but would pass for one: true is not 1, and "8" is not 8."""
    if isinstance(value, bool | str):
        raise PydanticCustomError(
            "number_type",
            "should be a number, not {given}",
            {"given": json.dumps(value)[:40], "nearest_legal": _numbers_in(value)},
        )
    return value


def _numbers_in(value: bool | str) -> list[int | float]:  # noqa: FBT001 - any value of a field
    """Return the number that a text says, if it says one."""
    if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", value):
        return []
    return [float(value) if "." in value else int(value)]


def refuse_text(value: object, *, meant: Callable[[str], Iterable[object]]) -> object:
    """Refuse a text where an object should stand, with the objects that it may mean."""
    if isinstance(value, str):
        nearest = list(meant(value[:MAX_TEXT]))
        raise PydanticCustomError("object_type", "should be an object", {"nearest_legal": nearest})
    return value


def _whole_number(value: object) -> object:
    """Take 8.0 for 8, as JSON has no other number; leave 8.5 to be refused."""
    number = _number(value)
    return int(number) if isinstance(number, float) and number.is_integer() else number


WholeNumber = BeforeValidator(_whole_number)
Number = BeforeValidator(_number)

MAX_DEVICES: Final = 10**7
MAX_SAMPLES: Final = 10**9
MAX_TOKENS: Final = 10**8
MAX_LAYERS: Final = 10**4
MAX_QUANTITY: Final = 1e21
"""Of bytes, bytes per second and FLOP per second: beyond any machine, far from overflow in a product."""

DeviceCount = Annotated[int, WholeNumber, Field(ge=1, le=MAX_DEVICES)]
"""Devices or ranks: a degree of parallelism, the size of a group."""
DeviceIndex = Annotated[int, WholeNumber, Field(ge=0, le=MAX_DEVICES)]
SampleCount = Annotated[int, WholeNumber, Field(ge=1, le=MAX_SAMPLES)]
TokenCount = Annotated[int, WholeNumber, Field(ge=1, le=MAX_TOKENS)]
LayerCount = Annotated[int, WholeNumber, Field(ge=1, le=MAX_LAYERS)]
LayerIndex = Annotated[int, WholeNumber, Field(ge=0, le=MAX_LAYERS)]
Quantity = Annotated[float, Number, Field(gt=0, le=MAX_QUANTITY, allow_inf_nan=False)]
"""A positive count or rate in base units."""
NonNegative = Annotated[float, Number, Field(ge=0, le=MAX_QUANTITY, allow_inf_nan=False)]
Latency = Annotated[float, Number, Field(ge=0, le=1e3, allow_inf_nan=False)]
"""Seconds."""
Share = Annotated[float, Number, Field(ge=0, le=1, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A name on one line, without control characters."""


def one_of(words: Iterable[str]) -> BeforeValidator:
    """Return what refuses a word that is not among these, and gives the words nearest to it."""
    return BeforeValidator(_choice_from([str(word) for word in words]))


def _choice_from(words: list[str]) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not isinstance(value, str) or value not in words:
            raise PydanticCustomError(
                "unknown_word",
                "{given} is not one of {words}",
                {
                    "given": json.dumps(value, default=repr)[:60],
                    "words": ", ".join(words),
                    "nearest_legal": list(nearest_names(value, words) if isinstance(value, str) else words),
                },
            )
        return value

    return check
