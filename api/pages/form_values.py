"""What was typed into the form, kept as it was; and a stored request as if it had been typed."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from api.pages.form_fields import FIELDS, FIXED_FIELDS, OWN, PRESET, Field, Kind, Verb, path_of

FORBID = "forbid"
MODEL_SOURCE = "model_source"
CLUSTER_SOURCE = "cluster_source"
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
        return self.source(CLUSTER_SOURCE, own="node_groups")

    def with_text(self, name: str, text: str) -> "FormValues":
        """Return the same with another text in one field."""
        return replace(self, texts={**self.texts, name: text})


def values_of(request: Mapping[str, Any], *, verb: Verb) -> FormValues:
    """Return the form of a request without defaults; what the form has no field for stands in ``more``."""
    rest = deepcopy(dict(request))
    texts: dict[str, str] = {}
    for form_field in FIELDS.values():
        if form_field.path and form_field.name != FORBID:
            text = _taken(rest, form_field, verb)
            if text is not None:
                texts[form_field.name] = text
    forbid = _take(rest, FIELDS[FORBID].path) or ()
    _drop_empty(rest)
    if rest:
        texts["more"] = json.dumps(rest, indent=2)
    return FormValues(texts=texts, forbid=tuple(map(str, forbid)))


def _taken(rest: dict[str, Any], form_field: Field, verb: Verb) -> str | None:
    """Take a field's value out of a request; None where it has none, or one that the field cannot show."""
    path = path_of(form_field, verb)
    value = _look(rest, path)
    if isinstance(value, dict) and form_field in FIXED_FIELDS:
        value = _single_word(value)
    if value is None or (isinstance(value, list | dict) and form_field.kind is not Kind.JSON):
        return None
    _take(rest, path)
    if form_field.kind is Kind.JSON:
        return json.dumps(value, indent=2)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _single_word(value: Mapping[str, Any]) -> object:
    """Return the word of a choice that has nothing else: ``{"mode": "full"}`` is "full"."""
    said = {key: part for key, part in value.items() if part}
    words = [said[key] for key in ("mode", "name") if key in said]
    return words[0] if len(said) == len(words) == 1 else dict(value)


def _look(document: Mapping[str, Any], path: tuple[str, ...]) -> object:
    here: Any = document
    for step in path:
        here = here.get(step) if isinstance(here, Mapping) else None
    return here


def _take(document: dict[str, Any], path: tuple[str, ...]) -> Any:  # noqa: ANN401 - the value of any field
    parent = _look(document, path[:-1])
    return parent.pop(path[-1], None) if isinstance(parent, dict) else None


def _drop_empty(document: dict[str, Any]) -> None:
    """Drop the objects that nothing is left in."""
    for key, value in list(document.items()):
        if isinstance(value, dict):
            _drop_empty(value)
            if not value:
                del document[key]
