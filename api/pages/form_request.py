"""From what was typed into the form to a request document, and from its faults back to the fields."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.pages.form_fields import (
    FIELDS,
    GROUP_FIELDS,
    GROUP_PATH,
    MACHINES,
    OWN,
    Field,
    Kind,
    Verb,
    field_at,
    path_of,
)
from api.pages.form_machines import whole_group
from api.pages.form_values import FormValues
from api.schemas.problem import FaultDocument

MAX_NUMBER_LENGTH: Final = 40
SEPARATORS: Final = str.maketrans("", "", ", _\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}'")
"""What people set thousands apart with."""
WHOLE_FORM: Final = ""
"""Where the faults stand that no field is to blame for."""


class UnreadableTextError(ValueError):
    """A text that is not what its field is for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldFault:
    """What is wrong with a field, and what may be clicked instead."""

    detail: str
    suggestions: tuple[str, ...] = ()


Faults = Mapping[str, tuple[FieldFault, ...]]
"""By field name; those of no field under the empty name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormRequest:
    """The request that a form says, as far as it can be read, and what cannot be read."""

    document: dict[str, Any]
    unreadable: Faults


def form_request(values: FormValues, *, verb: Verb) -> FormRequest:
    """Return the request document of a form; the service checks the rest."""
    document: dict[str, Any] = {"model": {}, "cluster": {}, "job": {}}
    if verb is Verb.EVALUATE:
        document["plan"] = {}
    unreadable: dict[str, tuple[FieldFault, ...]] = {}
    for field in FIELDS.values():
        text = values.text(field.name)
        if not text or not field.path or _is_other_source(field, values):
            continue
        try:
            value = _value(field, text)
        except UnreadableTextError as error:
            unreadable[field.name] = (FieldFault(detail=str(error)),)
            continue
        if field.name == MACHINES:
            _put_machines(document, value)
        else:
            _put(document, path_of(field, verb), value)
    if values.cluster_source == OWN and not values.text(MACHINES):
        groups = document["cluster"].get("node_groups", {})
        document["cluster"]["node_groups"] = [whole_group(groups.get(GROUP_PATH[-1], {}))]
    if values.forbid:
        _put(document, FIELDS["forbid"].path, list(values.forbid))
    try:
        document = _overlaid(document, values.text("more"))
    except UnreadableTextError as error:
        unreadable["more"] = (FieldFault(detail=str(error)),)
    return FormRequest(document=document, unreadable=unreadable)


def faults_by_field(faults: Iterable[FaultDocument], *, verb: Verb) -> Faults:
    """Return the faults of a request by the field that each falls on."""
    found: dict[str, tuple[FieldFault, ...]] = {}
    for fault in faults:
        field = field_at(fault.pointer, verb)
        name = field.name if field else WHOLE_FORM
        where = (
            "" if field and fault.pointer.count("/") <= len(path_of(field, verb)) else f"{fault.pointer}: "
        )
        suggestions = tuple(map(str, filter(_can_be_clicked, fault.nearest_legal)))
        is_clickable = field is not None and field.kind in {Kind.NUMBER, Kind.WORD} and not where
        one = FieldFault(detail=where + fault.detail, suggestions=suggestions if is_clickable else ())
        found[name] = (*found.get(name, ()), one)
    return found


def _is_other_source(field: Field, values: FormValues) -> bool:
    """Whether a field belongs to the source of the model, or of the cluster, that was not chosen."""
    own_model, own_cluster = values.model_source == OWN, values.cluster_source == OWN
    others = {
        "model_preset": own_model,
        "model_config": not own_model,
        "cluster_preset": own_cluster,
        "num_devices": own_cluster,
        MACHINES: not own_cluster,
        **{group.name: not own_cluster or bool(values.text(MACHINES)) for group in GROUP_FIELDS},
    }
    return others.get(field.name, False)


def _value(field: Field, text: str) -> object:
    match field.kind:
        case Kind.NUMBER:
            number = _number(text)
            return number if field.unit == 1 else number * field.unit
        case Kind.NAMES:
            return [name for name in re.split(r"[\s,;]+", text) if name]
        case Kind.FLAG:
            return _flag(text)
        case Kind.JSON:
            return _json(text)
        case Kind.WORD:
            return text


def _number(text: str) -> int | float:
    digits = text.translate(SEPARATORS)
    if len(digits) <= MAX_NUMBER_LENGTH:
        for read in (int, float):
            try:
                return read(digits)
            except ValueError:
                continue
    raise UnreadableTextError(f"“{text[:MAX_NUMBER_LENGTH]}” is not a number")


def _flag(text: str) -> bool:
    words = {"yes": True, "no": False}
    if text not in words:
        raise UnreadableTextError(f"“{text[:MAX_NUMBER_LENGTH]}” is neither yes nor no")
    return words[text]


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UnreadableTextError(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except RecursionError as error:
        raise UnreadableTextError("not a document: it is nested too deeply") from error


def _put_machines(document: dict[str, Any], value: object) -> None:
    """Take one node group, a list of them, or a cluster that has them and the links between them."""
    cluster = value if isinstance(value, dict) and "node_groups" in value else {"node_groups": value}
    groups = cluster["node_groups"]
    document["cluster"] |= {**cluster, "node_groups": [groups] if isinstance(groups, dict) else groups}


def _overlaid(document: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a request with another laid over it, object by object."""
    if not text:
        return document
    over = _json(text)
    if not isinstance(over, dict):
        raise UnreadableTextError("should be an object: {…}")
    return _merged(document, over)


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {**under, **over}
    for key in under.keys() & over.keys():
        if isinstance(under[key], dict) and isinstance(over[key], dict):
            both[key] = _merged(under[key], over[key])
    return both


def _put(document: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    here = document
    for step in path[:-1]:
        here = here.setdefault(step, {})
    here[path[-1]] = value


def _can_be_clicked(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
