from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import Engine, bindparam, cast, inspect, null, select
from sqlalchemy.exc import IntegrityError, StatementError

from api.database import SessionFactory, writing
from api.tables import Base, KernelMeasurementRow, PlanRow, UtcDateTime

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
LONGEST_NAME = 63
"""What PostgreSQL keeps of the name of a constraint."""


def plan_row(**changed: object) -> PlanRow:
    fields = {"kind": "plan", "state": "queued", "request": {}, "request_digest": "0" * 64}
    return PlanRow(**(fields | changed))


def names(engine: Engine, table: str) -> dict[str, set[str | None]]:
    """Return the names of what is kept about a table, by kind."""
    found = inspect(engine)
    return {
        "columns": {column["name"] for column in found.get_columns(table)},
        "indexes": {index["name"] for index in found.get_indexes(table)} - {None},
        "foreign keys": {key["name"] for key in found.get_foreign_keys(table)},
        "checks": {check["name"] for check in found.get_check_constraints(table)},
    }


@pytest.mark.parametrize("table", Base.metadata.sorted_tables, ids=lambda table: table.name)
def test_every_constraint_has_a_name_that_a_database_keeps(engine: Engine, table: object) -> None:
    for kind, kept in names(engine, str(table)).items():
        assert None not in kept, kind
        assert all(len(name or "") <= LONGEST_NAME for name in kept), kind


@pytest.mark.parametrize("table", ["kernel_measurements", "collective_measurements", "transfer_measurements"])
def test_measurements_are_looked_up_by_an_index(engine: Engine, table: str) -> None:
    indexes = inspect(engine).get_indexes(table)
    assert {index["column_names"][0] for index in indexes} == {"profile_run_id"}


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-8))])
def test_a_time_is_read_back_in_utc(sessions: SessionFactory, zone: timezone) -> None:
    with writing(sessions) as session:
        session.add(plan_row(created_at=NOON.astimezone(zone)))
    with sessions() as session:
        found = session.scalars(select(PlanRow.created_at)).one()
    assert (found, found.tzinfo) == (NOON, UTC)


def test_a_time_without_a_zone_is_refused(sessions: SessionFactory) -> None:
    with pytest.raises(StatementError, match="no time zone"), writing(sessions) as session:
        session.add(plan_row(created_at=NOON.replace(tzinfo=None)))


def test_a_missing_time_stays_missing(sessions: SessionFactory) -> None:
    with sessions() as session:
        assert session.scalar(select(cast(null(), UtcDateTime))) is None
        assert session.scalar(select(bindparam("at", None, UtcDateTime))) is None


@pytest.mark.parametrize("changed", [{"kind": "wish"}, {"state": "lost"}])
def test_a_word_outside_its_closed_set_is_refused(
    sessions: SessionFactory, changed: dict[str, object]
) -> None:
    with pytest.raises(IntegrityError), writing(sessions) as session:
        session.add(plan_row(**changed))


def test_a_measurement_without_its_profile_is_refused(sessions: SessionFactory) -> None:
    orphan = KernelMeasurementRow(
        profile_run_id=1, operator="add", dtype="bf16", phase="forward", shape={}, seconds=1.0
    )
    with pytest.raises(IntegrityError), writing(sessions) as session:
        session.add(orphan)
