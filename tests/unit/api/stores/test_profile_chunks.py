from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from api.database import create_database_engine, create_session_factory, migrate, writing
from api.stores.profile_chunks import KEPT, Chunk, DatabaseProfileChunkStore
from api.tables import ProfileChunkRow, utc_now

FIRST, SECOND = "a" * 64, "b" * 64
CHUNK = Chunk(digest="c" * 64, rows={"kernels": [{"seconds": 1.5}]})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DatabaseProfileChunkStore]:
    engine = create_database_engine(f"sqlite:///{tmp_path / 'chunks.sqlite3'}")
    migrate(engine)
    yield DatabaseProfileChunkStore(create_session_factory(engine))
    engine.dispose()


def test_chunks_wait_by_upload_and_number(store: DatabaseProfileChunkStore) -> None:
    store.put(FIRST, 2, CHUNK)
    store.put(FIRST, 0, CHUNK)
    store.put(SECOND, 1, CHUNK)

    assert store.numbers(FIRST) == [0, 2]
    assert store.all_of(SECOND) == {1: CHUNK}


def test_chunk_of_the_same_number_replaces_the_one_before(store: DatabaseProfileChunkStore) -> None:
    other = Chunk(digest="d" * 64, rows={})
    store.put(FIRST, 0, CHUNK)
    store.put(FIRST, 0, other)

    assert store.all_of(FIRST) == {0: other}


def test_dropping_forgets_the_upload_and_old_ones_alone(store: DatabaseProfileChunkStore) -> None:
    old = "e" * 64
    for upload in (FIRST, SECOND, old):
        store.put(upload, 0, CHUNK)
    with writing(store._sessions) as session:
        long_ago = utc_now() - KEPT - timedelta(minutes=1)
        session.execute(
            update(ProfileChunkRow).where(ProfileChunkRow.upload_digest == old).values(created_at=long_ago)
        )

    store.drop(FIRST)

    assert [store.numbers(upload) for upload in (FIRST, SECOND, old)] == [[], [0], []]
