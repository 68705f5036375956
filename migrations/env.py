"""Run the migrations on the database of the settings, or on the engine that the service hands over."""

from alembic import context
from sqlalchemy import Connection, Engine, text

from api.database import create_database_engine
from api.settings import Settings
from api.tables import Base

MIGRATION_LOCK = 7_364_710
"""Any number that nothing else on the PostgreSQL server locks."""


def migrate(engine: Engine) -> None:
    """Run the steps in one transaction, one process at a time."""
    with engine.execution_options(writes=True).connect() as connection:
        run_steps(connection)


def run_steps(connection: Connection) -> None:
    """Run the steps on a connection that nothing has begun on."""
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        transactional_ddl=True,
        compare_server_default=True,
        # SQLite changes a table by making a new one and copying.
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        context.run_migrations()


def run() -> None:
    """Migrate the engine that the caller gave, or else the database of the settings."""
    given = context.config.attributes.get("engine")
    if isinstance(given, Engine):
        migrate(given)
        return
    engine = create_database_engine(Settings().database_url)
    try:
        migrate(engine)
    finally:
        engine.dispose()


run()
