"""The database tables. A change here needs a migration."""

from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID, uuid4

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    MetaData,
    String,
    TypeDecorator,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

DIGEST_LENGTH = 64
"""A SHA-256 in hexadecimal: 256 bits, 4 a digit."""

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Every constraint has a name that a later migration can say."""


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time; SQLite stores it without its zone, which is always UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a time without a zone; hand the database UTC."""
        del dialect
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give back UTC, whatever the zone of the database session."""
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def utc_now() -> datetime:
    """Return the time now, in UTC."""
    return datetime.now(tz=UTC)


class Base(DeclarativeBase):
    """All tables of the service."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UtcDateTime,
        float: Double,
        # Text rather than PostgreSQL's own JSONB, which would reorder the keys of a document.
        dict[str, Any]: JSON(none_as_null=True),
    }


class PlanRow(Base):
    """One request to plan or to evaluate, and its result once there is one."""

    __tablename__ = "plans"
    __table_args__ = (
        CheckConstraint("kind IN ('plan', 'evaluation')", name="kind"),
        CheckConstraint("state IN ('queued', 'running', 'done', 'cancelled', 'failed')", name="state"),
        Index(None, "kind", "created_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    kind: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    state: Mapped[str]
    status: Mapped[str | None]
    request: Mapped[dict[str, Any]]
    result: Mapped[dict[str, Any] | None]
    request_digest: Mapped[str] = mapped_column(String(DIGEST_LENGTH), index=True)


class ProfileRunRow(Base):
    """One profile: what was measured on one kind of hardware, with one set of software."""

    __tablename__ = "profile_runs"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    device: Mapped[str] = mapped_column(index=True)
    software: Mapped[dict[str, Any]]
    facts: Mapped[dict[str, Any]]
    digest: Mapped[str] = mapped_column(String(DIGEST_LENGTH), unique=True)
    source: Mapped[str | None]
    licence: Mapped[str | None]
    built_in: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class KernelMeasurementRow(Base):
    """The time of one operator of one shape on one device."""

    __tablename__ = "kernel_measurements"
    __table_args__ = (
        Index(None, "profile_run_id", "operator", "dtype", "phase"),
        # The narrow one is what the rows of a profile are counted by, a million of them in milliseconds.
        Index(None, "profile_run_id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    profile_run_id: Mapped[int] = mapped_column(ForeignKey("profile_runs.id", ondelete="CASCADE"))
    operator: Mapped[str]
    dtype: Mapped[str]
    phase: Mapped[str]
    shape: Mapped[dict[str, Any]]
    seconds: Mapped[float]
    spread_seconds: Mapped[float | None]
    source: Mapped[str | None]
    source_ref: Mapped[str | None]


class CollectiveMeasurementRow(Base):
    """The time of one collective of one size over one group of devices."""

    __tablename__ = "collective_measurements"
    __table_args__ = (Index(None, "profile_run_id", "operation"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    profile_run_id: Mapped[int] = mapped_column(ForeignKey("profile_runs.id", ondelete="CASCADE"))
    operation: Mapped[str]
    world_size: Mapped[int]
    ranks_per_node: Mapped[int]
    payload_bytes: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float]
    spread_seconds: Mapped[float | None]
    dtype: Mapped[str | None]
    algorithm: Mapped[str | None]
    intra_link: Mapped[str | None]
    inter_link: Mapped[str | None]
    source: Mapped[str | None]
    source_ref: Mapped[str | None]


class TransferMeasurementRow(Base):
    """The rate of one copy between two tiers of memory."""

    __tablename__ = "transfer_measurements"
    __table_args__ = (Index(None, "profile_run_id", "operation"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    profile_run_id: Mapped[int] = mapped_column(ForeignKey("profile_runs.id", ondelete="CASCADE"))
    operation: Mapped[str]
    payload_bytes: Mapped[int | None] = mapped_column(BigInteger)
    bytes_per_second: Mapped[float]
    source: Mapped[str | None]
    source_ref: Mapped[str | None]


class ProfileChunkRow(Base):
    """One chunk of a profile that is being sent, until the last of them is there."""

    __tablename__ = "profile_chunks"

    upload_digest: Mapped[str] = mapped_column(String(DIGEST_LENGTH), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    body_digest: Mapped[str] = mapped_column(String(DIGEST_LENGTH))
    rows: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class DeviceRow(Base):
    """One kind of device, by the name that requests say."""

    __tablename__ = "devices"

    name: Mapped[str] = mapped_column(primary_key=True)
    vendor: Mapped[str | None]
    architecture: Mapped[str | None]
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    details: Mapped[dict[str, Any]]


class TrialRow(Base):
    """One plan that was run for some steps, and what was measured against what was predicted."""

    __tablename__ = "trials"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    result_id: Mapped[UUID | None] = mapped_column(index=True)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    device: Mapped[str]
    report: Mapped[dict[str, Any]]
