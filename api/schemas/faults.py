"""What a document breaks, as JSON pointers with the nearest legal names."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from api.schemas.problem import FaultDocument
from planner.names import nearest_names

MAX_FAULTS: Final = 100
"""Faults that are told; a document with more is hardly read one by one."""
UNKNOWN_FIELD: Final = "extra_forbidden"
MISSING_FIELD: Final = "missing"
PLAIN_MESSAGES: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "model_type": "should be an object",
    "model_attributes_type": "should be an object",
    "dict_type": "should be an object",
    "tuple_type": "should be a list",
    "union_tag_invalid": "{tag!r} is not one of {expected_tags}",
    "union_tag_not_found": "is missing",
}
"""What pydantic says in the words of Python, in those of JSON."""

Location = tuple[int | str, ...]


def faults_in(error: ValidationError, *, document: object, schema: type[BaseModel]) -> list[FaultDocument]:
    """Return what is wrong with a document that was read by a schema."""
    return faults_from(error.errors(include_url=False), document=document, schema=schema)


def faults_from(
    errors: Sequence[Mapping[str, Any]], *, document: object, schema: type[BaseModel]
) -> list[FaultDocument]:
    """Return what is wrong with a document, from the errors that pydantic lists.

    Unknown fields come first: one that is misspelt makes another one missing.
    """
    told = [error for error in errors if not _is_echo(error, errors)]
    told.sort(key=lambda error: error["type"] != UNKNOWN_FIELD)
    return [_fault(error, document=document, schema=schema) for error in told[:MAX_FAULTS]]


def _is_echo(error: Mapping[str, Any], errors: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a list is called too short only because of the faults in its items."""
    length = len(error["loc"])
    return error["type"] == "too_short" and any(
        len(other["loc"]) > length and other["loc"][:length] == error["loc"] for other in errors
    )


def _fault(error: Mapping[str, Any], *, document: object, schema: type[BaseModel]) -> FaultDocument:
    location: Location = tuple(error["loc"])
    if error["type"] == UNKNOWN_FIELD:
        return _unknown_field(location, document=document, schema=schema)
    steps = _steps(location, document=document, is_missing=error["type"] == MISSING_FIELD)
    steps += _named_field(error.get("ctx", {}))
    return FaultDocument(
        pointer=json_pointer(steps), detail=_detail(error), nearest_legal=_nearest_legal(error)
    )


def _unknown_field(location: Location, *, document: object, schema: type[BaseModel]) -> FaultDocument:
    steps = _steps(location, document=document, is_missing=True)
    known = [field for model in _models_at(schema, location[:-1]) for field in model.model_fields]
    nearest = nearest_names(str(location[-1]), known)
    return FaultDocument(
        pointer=json_pointer(steps),
        detail=f"there is no field {str(location[-1])[:100]!r} here",
        nearest_legal=nearest,
    )


def _detail(error: Mapping[str, Any]) -> str:
    """Return the message, as a sentence about the field that the pointer names."""
    plain = PLAIN_MESSAGES.get(error["type"])
    if plain is not None:
        return plain.format_map(error.get("ctx", {}))
    return str(error["msg"]).replace("Input should", "should", 1)


def _nearest_legal(error: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what would be legal: what the rule itself gives, a limit, or the kinds of an alternative."""
    context = error.get("ctx", {})
    if error["type"] == "union_tag_invalid":
        kinds = [kind.strip(" '") for kind in context["expected_tags"].split(",")]
        return nearest_names(str(context["tag"]), kinds)
    limits = tuple(context[limit] for limit in ("ge", "le") if limit in context)
    return tuple(context.get("nearest_legal", limits))


def _named_field(context: Mapping[str, Any]) -> list[int | str]:
    """Return the field that a whole document's rule blames, or that says which form it has."""
    field = context.get("field") or str(context.get("discriminator", "")).strip("'")
    return [field] if field and not field.startswith("_") and "(" not in field else []


def _steps(location: Location, *, document: object, is_missing: bool) -> list[int | str]:
    """Return the part of a location that is in the document.

    Names of alternatives that pydantic tried stand between the fields; a missing field is the last.
    """
    steps: list[int | str] = []
    here: Any = document
    for step in location:
        is_key = isinstance(here, Mapping) and step in here
        is_index = isinstance(here, list | tuple) and isinstance(step, int) and step < len(here)
        if is_key or is_index:
            here = here[step]
            steps.append(step)
    if is_missing and location and (not steps or steps[-1] != location[-1]):
        steps.append(location[-1])
    return steps


def json_pointer(steps: Sequence[int | str]) -> str:
    """Return the JSON pointer (RFC 6901) of a field, the empty one for the whole document."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def _models_at(schema: type[BaseModel], location: Location) -> list[type[BaseModel]]:
    """Return the documents that may stand at a location."""
    here = [schema]
    for step in location:
        inner = [
            model.model_fields[step].annotation
            for model in here
            if isinstance(step, str) and step in model.model_fields
        ]
        here = [model for annotation in inner for model in _models_in(annotation)] or here
    return here


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the documents that an annotation speaks of, whatever is around them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
