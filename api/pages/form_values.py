"""What was typed into the form, kept as it was; and a stored request as if it had been typed."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from api.pages.form_fields import (
    FIELDS,
    FIXED_FIELDS,
    GROUP_FIELDS,
    MACHINES,
    OWN,
    PRESET,
    Field,
    Kind,
    Verb,
    path_of,
)
from api.pages.remainder import Remainder, single_word

FORBID = "forbid"
MODEL_SOURCE = "model_source"
CLUSTER_SOURCE = "cluster_source"
BETWEEN_PATH = ("cluster", "between_groups")
SOURCES = (MODEL_SOURCE, CLUSTER_SOURCE)


@dataclass(frozen=True, kw_only=True, slots=True)
class FormValues:
    """Texts by field name; ``forbid`` lists the techniques that are ticked."""

    texts: Mapping[str, str] = field(default_factory=dict)
    forbid: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        """Return what stands in a field, without blanks around it."""
        return self.texts.get(name, "").strip()

    def source(self, name: str, *, own: str) -> str:
        """Return which of two sources is chosen; the caller's own where only that is given."""
        chosen = self.text(name)
        return chosen if chosen in {PRESET, OWN} else (OWN if self.text(own) else PRESET)

    @property
    def model_source(self) -> str:
        """Where the model comes from: ``preset`` or ``own``."""
        return self.source(MODEL_SOURCE, own="model_config")

    @property
    def cluster_source(self) -> str:
        """Where the cluster comes from: ``preset`` or ``own``."""
        return self.source(CLUSTER_SOURCE, own=MACHINES)

    def with_text(self, name: str, text: str) -> "FormValues":
        """Return the same with another text in one field."""
        return replace(self, texts={**self.texts, name: text})


def values_of(request: Mapping[str, Any], *, verb: Verb) -> FormValues:
    """Return the form of a request without defaults; what the form has no field for stands in ``more``."""
    rest = Remainder(request)
    texts: dict[str, str] = {}
    for form_field in FIELDS.values():
        if form_field.path and form_field.name != FORBID and form_field not in GROUP_FIELDS:
            text = _taken(rest, form_field, verb)
            if text is not None:
                texts[form_field.name] = text
    forbid = rest.take(FIELDS[FORBID].path) or ()
    if rest.left():
        texts["more"] = json.dumps(rest.left(), indent=2)
    return FormValues(texts=texts, forbid=tuple(map(str, forbid)))


def _taken(rest: Remainder, form_field: Field, verb: Verb) -> str | None:
    """Take a field's value out of a request; None where it has none, or one that the field cannot show."""
    path = path_of(form_field, verb)
    value = rest.look(path)
    if form_field in FIXED_FIELDS:
        value = single_word(value)
    if value is None or not _is_shown(value, form_field.kind):
        return None
    rest.take(path)
    if form_field.name == MACHINES and rest.look(BETWEEN_PATH):
        value = {"node_groups": value, "between_groups": rest.take(BETWEEN_PATH)}
    match form_field.kind:
        case Kind.JSON:
            return json.dumps(value, indent=2)
        case Kind.NAMES:
            return ", ".join(value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _is_shown(value: object, kind: Kind) -> bool:
    """Whether a field of a kind can show a value: lists and objects only as what they are."""
    if kind is Kind.NAMES:
        return isinstance(value, list) and all(map(_is_plain_name, value))
    return kind is Kind.JSON or not isinstance(value, list | dict)


def _is_plain_name(value: object) -> bool:
    return isinstance(value, str) and not re.search(r"[\s,;]", value)
