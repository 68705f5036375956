"""Profiles in the database: what was measured, one row for each measurement."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import ScalarSelect, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from api.database import SessionFactory, writing
from api.stores.documents import Document, document_digest
from api.stores.measurements import MEASUREMENT_LISTS, MeasurementList
from api.tables import ProfileRunRow

PROFILE_FORMAT = "meshplan-profile/1"


class BuiltInProfileError(ValueError):
    """A profile that comes with the product would have been replaced or deleted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"profile {name!r} is built in: it cannot be replaced or deleted")
        self.name = name


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileSummary:
    """What a profile is, without its measurements."""

    name: str
    device: str
    digest: str
    software: Document
    facts: Document
    source: str | None
    licence: str | None
    built_in: bool
    created_at: datetime
    num_kernels: int
    num_collectives: int
    num_transfers: int


class ProfileStore(Protocol):
    """Where profiles are kept, as documents of the format ``meshplan-profile/1``."""

    def add(self, document: Mapping[str, Any], *, digest: str | None = None, built_in: bool = False) -> int:
        """Keep a profile and return its number; the same profile again changes nothing.

        It is the same when its digest is: the one given (the planner's own), or else `profile_digest`.
        Another document of the same name replaces the one before; BuiltInProfileError where that one is built
        in and this one is not, ValueError where a measurement is not of the format.
        """
        ...

    def names(self) -> list[str]:
        """Return the names of all profiles, sorted."""
        ...

    def get(self, name: str) -> Document | None:
        """Return the profile of exactly this name with all its measurements, or None."""
        ...

    def for_device(self, device: str) -> list[Document]:
        """Return the profiles measured on this device, by name, with all their measurements."""
        ...

    def summaries(self, *, device: str | None = None) -> list[ProfileSummary]:
        """Return what profiles there are, by name; of one device where it is given.

        It counts their measurements, which takes a while where there are a million.
        """
        ...

    def built_in_facts(self) -> dict[str, Document]:
        """Return the facts of the profiles that come with the product, by name; nothing is counted."""
        ...

    def delete(self, name: str) -> bool:
        """Delete a profile with its measurements; False where there is none.

        BuiltInProfileError where it is built in.
        """
        ...


class DatabaseProfileStore:
    """The profile store on SQLite or PostgreSQL."""

    def __init__(self, sessions: SessionFactory) -> None:
        self._sessions = sessions

    def add(self, document: Mapping[str, Any], *, digest: str | None = None, built_in: bool = False) -> int:
        """See `ProfileStore.add`."""
        profile = canonical_profile(document)
        digest = digest or document_digest(profile)
        try:
            return self._add(profile, digest=digest, built_in=built_in)
        except IntegrityError:
            # Another process added the same profile in between.
            return self._add(profile, digest=digest, built_in=built_in)

    def names(self) -> list[str]:
        """See `ProfileStore.names`."""
        with self._sessions() as session:
            return sorted(session.scalars(select(ProfileRunRow.name)))

    def get(self, name: str) -> Document | None:
        """See `ProfileStore.get`."""
        with self._sessions() as session:
            run = _run_named(session, name)
            return None if run is None else _profile(session, run)

    def for_device(self, device: str) -> list[Document]:
        """See `ProfileStore.for_device`."""
        with self._sessions() as session:
            runs = session.scalars(select(ProfileRunRow).where(ProfileRunRow.device == device)).all()
            return [_profile(session, run) for run in sorted(runs, key=lambda run: run.name)]

    def summaries(self, *, device: str | None = None) -> list[ProfileSummary]:
        """See `ProfileStore.summaries`."""
        runs = select(ProfileRunRow, *map(_num_rows, MEASUREMENT_LISTS))
        if device is not None:
            runs = runs.where(ProfileRunRow.device == device)
        with self._sessions() as session:
            found = [_summary(run, *counts) for run, *counts in session.execute(runs)]
        return sorted(found, key=lambda summary: summary.name)

    def built_in_facts(self) -> dict[str, Document]:
        """See `ProfileStore.built_in_facts`."""
        with self._sessions() as session:
            built_in = select(ProfileRunRow.name, ProfileRunRow.facts).where(ProfileRunRow.built_in)
            return {row.name: row.facts for row in session.execute(built_in)}

    def delete(self, name: str) -> bool:
        """See `ProfileStore.delete`."""
        with writing(self._sessions) as session:
            run = _run_named(session, name)
            if run is None:
                return False
            if run.built_in:
                raise BuiltInProfileError(name)
            session.delete(run)
            return True

    def _add(self, profile: Document, *, digest: str, built_in: bool) -> int:
        with writing(self._sessions) as session:
            known = _run_named(session, profile["name"])
            if known is not None:
                if known.digest == digest and known.built_in >= built_in:
                    return known.id
                if known.built_in and not built_in:
                    raise BuiltInProfileError(known.name)
                session.delete(known)
                session.flush()
            return _insert(session, profile, digest=digest, built_in=built_in)


def canonical_profile(document: Mapping[str, Any]) -> Document:
    """Return the document as the store gives it back: every key in its place, numbers as numbers.

    Two documents that say the same have the same canonical form, and so the same digest. ValueError where a
    measurement lacks a key or has one that is not known.
    """
    extra = {key: document[key] for key in ("source", "licence") if document.get(key) is not None}
    return {
        "format": PROFILE_FORMAT,
        "name": document["name"],
        "device": document["device"],
        "software": dict(document.get("software", {})),
        "facts": dict(document.get("facts", {})),
        **extra,
        **{measured.name: measured.canonical(document) for measured in MEASUREMENT_LISTS},
    }


def profile_digest(document: Mapping[str, Any]) -> str:
    """Return the digest under which the store keeps this profile when it is given no other."""
    return document_digest(canonical_profile(document))


def _run_named(session: Session, name: str) -> ProfileRunRow | None:
    return session.scalar(select(ProfileRunRow).where(ProfileRunRow.name == name))


def _insert(session: Session, profile: Document, *, digest: str, built_in: bool) -> int:
    run = ProfileRunRow(
        name=profile["name"],
        device=profile["device"],
        software=profile["software"],
        facts=profile["facts"],
        digest=digest,
        source=profile.get("source"),
        licence=profile.get("licence"),
        built_in=built_in,
    )
    session.add(run)
    session.flush()
    for measured in MEASUREMENT_LISTS:
        measured.insert(session, profile[measured.name], profile_run_id=run.id)
    return run.id


def _profile(session: Session, run: ProfileRunRow) -> Document:
    measurements = {
        measured.name: measured.read(session, profile_run_id=run.id) for measured in MEASUREMENT_LISTS
    }
    return canonical_profile(
        {
            "name": run.name,
            "device": run.device,
            "software": run.software,
            "facts": run.facts,
            "source": run.source,
            "licence": run.licence,
            **measurements,
        }
    )


def _num_rows(measured: MeasurementList) -> ScalarSelect[int]:
    run_id = measured.table.columns["profile_run_id"]
    return select(func.count()).where(run_id == ProfileRunRow.id).correlate(ProfileRunRow).scalar_subquery()


def _summary(
    run: ProfileRunRow, num_kernels: int, num_collectives: int, num_transfers: int
) -> ProfileSummary:
    return ProfileSummary(
        name=run.name,
        device=run.device,
        digest=run.digest,
        software=run.software,
        facts=run.facts,
        source=run.source,
        licence=run.licence,
        built_in=run.built_in,
        created_at=run.created_at,
        num_kernels=num_kernels,
        num_collectives=num_collectives,
        num_transfers=num_transfers,
    )
