"""The place on a plan page that shows the field which a sentence cites."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MEMORY: Final = "/prediction/memory/"
TIME: Final = "/prediction/breakdown_seconds/"
STAGES: Final = "/plan/stages/"
SECTIONS: Final = (
    ("/prediction/memory", "memory", "memory"),
    ("/prediction/breakdown_seconds", "time", "where the time goes"),
    ("/prediction/provenance", "provenance", "provenance"),
    ("/prediction", "headline", "the headline numbers"),
    ("/profiles", "provenance", "provenance"),
    ("/certificate", "certificate", "certificate"),
    ("/alternatives", "alternatives", "alternatives"),
    ("/sensitivity", "sensitivity", "solved again"),
    ("/plan/stages", "stages", "stages"),
    ("/plan", "plan", "the plan"),
    ("/violations", "violations", "broken rules"),
    ("/shortage", "shortage", "what is missing"),
    ("/nearest_fit", "shortage", "what is missing"),
    ("/request", "request", "the request"),
)
"""Pointer, the section's anchor, what to call it; the first that the pointer starts with counts."""
WHOLE_PAGE: Final = ("plan", "the plan")


@dataclass(frozen=True, kw_only=True, slots=True)
class Citation:
    """A sentence, the field that backs it, and the place on the page that shows the field."""

    text: str
    pointer: str
    anchor: str
    place: str


def citation(explanation: Mapping[str, Any]) -> Citation:
    """Return a sentence of the explanation with the place that it cites."""
    pointer = explanation["pointer"]
    anchor, place = anchor_of(pointer)
    return Citation(text=explanation["text"], pointer=pointer, anchor=anchor, place=place)


def anchor_of(pointer: str) -> tuple[str, str]:
    """Return the anchor that shows a field of the result, and what to call it."""
    for prefix, section, word in ((MEMORY, "memory", "memory, row"), (STAGES, "stage", "stage")):
        index = pointer.removeprefix(prefix).split("/")[0]
        if pointer.startswith(prefix) and index.isdecimal():
            return f"{section}-{index}", f"{word} {index}"
    key = pointer.removeprefix(TIME)
    if pointer.startswith(TIME) and key.replace("_", "").isalpha():
        return f"time-{key}", key.replace("_", " ")
    matching = (
        (anchor, place) for prefix, anchor, place in SECTIONS if f"{pointer}/".startswith(f"{prefix}/")
    )
    return next(matching, WHOLE_PAGE)
