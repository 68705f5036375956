"""Chunks of profiles that are being sent, kept until the last of them is there."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from sqlalchemy import delete, select

from api.database import SessionFactory, writing
from api.tables import ProfileChunkRow, utc_now

KEPT = timedelta(days=7)
"""How long an upload that nobody went on with is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """The rows of one chunk, and the digest of the body that they came in."""

    digest: str
    rows: Mapping[str, Any]


class ProfileChunkStore(Protocol):
    """Where chunks wait for the rest of their upload, which its digest names."""

    def put(self, upload: str, number: int, chunk: Chunk) -> None:
        """Keep a chunk; one of the same number replaces the one before."""
        ...

    def numbers(self, upload: str) -> list[int]:
        """Return the numbers of the chunks that are there, sorted."""
        ...

    def all_of(self, upload: str) -> dict[int, Chunk]:
        """Return the chunks that are there, by number."""
        ...

    def drop(self, upload: str) -> None:
        """Forget an upload, and all that nobody has gone on with for long."""
        ...


class DatabaseProfileChunkStore:
    """The chunk store on SQLite or PostgreSQL."""

    def __init__(self, sessions: SessionFactory) -> None:
        self._sessions = sessions

    def put(self, upload: str, number: int, chunk: Chunk) -> None:
        """See `ProfileChunkStore.put`."""
        with writing(self._sessions) as session:
            session.merge(
                ProfileChunkRow(
                    upload_digest=upload,
                    number=number,
                    body_digest=chunk.digest,
                    rows=dict(chunk.rows),
                    created_at=utc_now(),
                )
            )

    def numbers(self, upload: str) -> list[int]:
        """See `ProfileChunkStore.numbers`."""
        with self._sessions() as session:
            wanted = select(ProfileChunkRow.number).where(ProfileChunkRow.upload_digest == upload)
            return sorted(session.scalars(wanted))

    def all_of(self, upload: str) -> dict[int, Chunk]:
        """See `ProfileChunkStore.all_of`."""
        with self._sessions() as session:
            rows = session.scalars(select(ProfileChunkRow).where(ProfileChunkRow.upload_digest == upload))
            return {row.number: Chunk(digest=row.body_digest, rows=row.rows) for row in rows}

    def drop(self, upload: str) -> None:
        """See `ProfileChunkStore.drop`."""
        with writing(self._sessions) as session:
            session.execute(
                delete(ProfileChunkRow).where(
                    (ProfileChunkRow.upload_digest == upload)
                    | (ProfileChunkRow.created_at < utc_now() - KEPT)
                )
            )
