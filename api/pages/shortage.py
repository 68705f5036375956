"""What a request lacks, said exactly, and the smallest change under which a plan fits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from api.pages.form_fields import Kind, Verb, field_at
from api.pages.plan_words import plan_line
from api.pages.quantities import bytes_scale, count
from api.pages.request_summary import words


@dataclass(frozen=True, kw_only=True, slots=True)
class ShortageRow:
    """One resource that even the most frugal plan lacks."""

    resource: str
    where: str
    needed: str
    available: str
    missing: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NearestFitView:
    """The change, as pointer and new value, and the plan that then fits."""

    changes: tuple[tuple[str, str], ...]
    plan: str
    link: str
    """To the form with the change made; empty where the form has no field for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fix:
    """A value that would be legal, and the form with it filled in."""

    text: str
    link: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ViolationRow:
    """A rule that a plan breaks, and the nearest legal values."""

    field: str
    pointer: str
    rule: str
    nearest: tuple[Fix, ...]


def shortage_rows(document: Mapping[str, Any]) -> tuple[ShortageRow, ...]:
    """Return what an infeasible request lacks."""
    return tuple(_shortage_row(shortage) for shortage in document.get("shortage") or ())


def nearest_fit_view(document: Mapping[str, Any]) -> NearestFitView | None:
    """Return the smallest change under which a plan fits, where one is known."""
    nearest = document.get("nearest_fit")
    if not nearest:
        return None
    changes: Mapping[str, object] = nearest["change"]
    return NearestFitView(
        changes=tuple((_change_name(pointer), _value(value)) for pointer, value in changes.items()),
        plan=plan_line(nearest["plan"]) if nearest.get("plan") else "",
        link=_form_with(document, changes, verb=Verb.PLAN),
    )


def violation_rows(document: Mapping[str, Any]) -> tuple[ViolationRow, ...]:
    """Return the rules that an illegal plan breaks."""
    return tuple(
        ViolationRow(
            field=words(violation["pointer"].rsplit("/", 1)[-1]),
            pointer=violation["pointer"],
            rule=violation["rule"],
            nearest=tuple(
                Fix(
                    text=_value(value),
                    link=_form_with(document, {violation["pointer"]: value}, verb=Verb.EVALUATE),
                )
                for value in violation.get("nearest_legal") or ()
            ),
        )
        for violation in document.get("violations") or ()
    )


def _shortage_row(shortage: Mapping[str, Any]) -> ShortageRow:
    needed, available = shortage["needed_bytes"], shortage["available_bytes"]
    scale = bytes_scale(max(needed, available))
    return ShortageRow(
        resource=words(shortage["resource"]),
        where=", ".join(_where(shortage)),
        needed=str(scale.quantity(needed)),
        available=str(scale.quantity(available)),
        missing=str(scale.quantity(needed - available)),
    )


def _where(shortage: Mapping[str, Any]) -> Iterator[str]:
    if shortage.get("stage") is not None:
        yield f"stage {shortage['stage']}"
    if shortage.get("node_group"):
        yield f"node group {shortage['node_group']}"


def _change_name(pointer: str) -> str:
    return words(pointer.rsplit("/", 1)[-1])


def _form_with(document: Mapping[str, Any], changes: Mapping[str, object], *, verb: Verb) -> str:
    """Return the address of the form of a request with some fields changed; nothing where it lacks one."""
    fields = {pointer: field_at(pointer, verb) for pointer in changes}
    query = {
        field.name: str(changes[pointer])
        for pointer, field in fields.items()
        if field is not None and field.kind in {Kind.NUMBER, Kind.WORD}
    }
    return f"/?{urlencode({'from': document['id'], **query})}" if len(query) == len(changes) else ""


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return count(value) if isinstance(value, int) else str(value)
