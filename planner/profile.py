"""Measured speeds of one kind of hardware: what was measured, by whom, and how to read it."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any, Final

from planner.errors import InvalidRequest, UnknownName
from planner.measurements import CollectiveRow, KernelTable, Source, TransferRow
from planner.names import nearest_names
from planner.profile_columns import tables_from_columns
from planner.profile_digest import content_digest
from planner.profile_document import MAX_NAME_LENGTH, RefusedRow, read_rows
from planner.profile_rows import collective_document, kernel_documents, transfer_document
from planner.units import Seconds

FORMAT: Final = "meshplan-profile/1"
KEYS: Final = frozenset(
    {"format", "name", "device", "software", "facts", "kernels", "collectives", "transfers"}
)
BUILTIN_PACKAGE: Final = "planner.profiles"
SHOWN_ROWS: Final = 5
"""Refused rows that the text of an error repeats; the error carries all of them."""


class InvalidProfile(InvalidRequest):
    """A profile document that cannot be used; ``refused`` says each bad row and why."""

    def __init__(self, message: str, *, pointer: str, refused: tuple[RefusedRow, ...] = ()) -> None:
        """Keep the message, the pointer of the first fault and every refused row."""
        super().__init__(message, pointer=pointer)
        self.refused = refused


class Provenance(StrEnum):
    """Where a figure comes from, best first."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    DATASHEET = "datasheet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A duration, where it comes from, and its relative error (one standard deviation)."""

    seconds: Seconds
    provenance: Provenance
    relative_error: float

    def scaled(self, factor: float) -> "Estimate":
        """Return the same estimate for ``factor`` times the work."""
        if factor == 1.0:
            return self
        return Estimate(
            seconds=self.seconds * factor, provenance=self.provenance, relative_error=self.relative_error
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Profile:
    """All measurements of one kind of hardware with one set of software.

    Equal content gives an equal ``digest``, whatever the order of the rows.
    """

    name: str
    device: str
    software: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    kernels: tuple[KernelTable, ...] = ()
    collectives: tuple[CollectiveRow, ...] = ()
    transfers: tuple[TransferRow, ...] = ()
    sources: tuple[Source, ...] = ()
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Name the content by its hash."""
        head = [FORMAT, self.name, self.device, self.software, self.facts]
        rows = [*map(collective_document, self.collectives), *map(transfer_document, self.transfers)]
        content = content_digest(head, kernels=self.kernels, sources=self.sources, rows=rows)
        object.__setattr__(self, "digest", content)

    @classmethod
    def from_document(cls, document: Mapping[str, object]) -> "Profile":
        """Return the profile that a document says; InvalidProfile names every row at fault."""
        profile, refused = cls.read(document)
        if refused:
            shown = "; ".join(f"{row.pointer}: {row.reason}" for row in refused[:SHOWN_ROWS])
            raise InvalidProfile(
                f"{len(refused)} rows of the profile cannot be used: {shown}",
                pointer=refused[0].pointer,
                refused=refused,
            )
        return profile

    @classmethod
    def read(cls, document: Mapping[str, object]) -> tuple["Profile", tuple[RefusedRow, ...]]:
        """Return the profile made of the good rows, and the bad rows with their reasons.

        Raises InvalidProfile where the document itself is no profile.
        """
        _check_head(document)
        rows = read_rows(document)
        profile = cls(
            name=str(document["name"]),
            device=str(document["device"]),
            software=_object(document, "software"),
            facts=_object(document, "facts"),
            kernels=rows.kernels,
            collectives=rows.collectives,
            transfers=rows.transfers,
            sources=rows.sources,
        )
        return profile, rows.refused

    def to_document(self) -> dict[str, Any]:
        """Return the profile as a document, one object per row."""
        return {
            "format": FORMAT,
            "name": self.name,
            "device": self.device,
            "software": dict(self.software),
            "facts": dict(self.facts),
            "kernels": [row for table in self.kernels for row in kernel_documents(table, self.sources)],
            "collectives": [collective_document(row) for row in self.collectives],
            "transfers": [transfer_document(row) for row in self.transfers],
        }

    @property
    def num_rows(self) -> int:
        """Measurements of all kinds together."""
        return sum(map(len, self.kernels)) + len(self.collectives) + len(self.transfers)

    def tables(self, operator: str) -> tuple[KernelTable, ...]:
        """Return all tables of one operator."""
        return tuple(table for table in self.kernels if table.operator == operator)


@cache
def builtin_profile_names() -> tuple[str, ...]:
    """Return the names of the profiles that come with the package, sorted."""
    files = resources.files(BUILTIN_PACKAGE).iterdir()
    stems = sorted(file.name.removesuffix(".json.gz") for file in files if file.name.endswith(".json.gz"))
    return tuple(f"{stem}/published" for stem in stems)


@cache
def builtin_profile(name: str) -> Profile:
    """Return one built-in profile; UnknownName when there is none of that name."""
    if name not in builtin_profile_names():
        nearest = nearest_names(name, builtin_profile_names())
        raise UnknownName(f"no built-in profile {name!r}", pointer="/profiles", nearest_legal=nearest)
    file = resources.files(BUILTIN_PACKAGE) / (name.removesuffix("/published") + ".json.gz")
    columns = json.loads(gzip.decompress(file.read_bytes()))
    return Profile(
        name=columns["name"],
        device=columns["device"],
        software=columns["software"],
        facts=columns["facts"],
        **tables_from_columns(columns),
    )


def builtin_profiles() -> tuple[Profile, ...]:
    """Return all profiles that come with the package, by name."""
    return tuple(builtin_profile(name) for name in builtin_profile_names())


def _check_head(document: Mapping[str, object]) -> None:
    if not isinstance(document, Mapping):
        raise InvalidProfile("a profile is an object", pointer="")
    if document.get("format") != FORMAT:
        raise InvalidProfile(f"format is {document.get('format')!r}, not {FORMAT!r}", pointer="/format")
    for key in ("name", "device"):
        value = document.get(key)
        if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH:
            raise InvalidProfile(
                f"{key} must be a text of 1 to {MAX_NAME_LENGTH} characters", pointer=f"/{key}"
            )
    for key in sorted(set(document) - KEYS):
        raise InvalidProfile(f"unknown field {key!r}", pointer=f"/{key}")


def _object(document: Mapping[str, object], key: str) -> Mapping[str, Any]:
    value = document.get(key, {})
    if isinstance(value, Mapping):
        return value
    raise InvalidProfile(f"{key} must be an object", pointer=f"/{key}")
