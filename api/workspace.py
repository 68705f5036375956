"""The database opened: migrated, seeded, with the stores on it."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine

from api.database import create_database_engine, create_session_factory, is_migrated, migrate
from api.profile_library import ProfileLibrary
from api.seeding import seed_devices, seed_profiles
from api.stores.devices import DatabaseDeviceStore, DeviceStore
from api.stores.plans import DatabasePlanStore, PlanStore
from api.stores.profile_chunks import DatabaseProfileChunkStore, ProfileChunkStore
from api.stores.profiles import DatabaseProfileStore, ProfileStore
from api.stores.trials import DatabaseTrialStore, TrialStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """Everything that is kept, and how to let go of it."""

    engine: Engine
    plans: PlanStore
    profiles: ProfileStore
    profile_chunks: ProfileChunkStore
    devices: DeviceStore
    trials: TrialStore
    library: ProfileLibrary

    def is_migrated(self) -> bool:
        """Whether the database has the tables of this version; raises SQLAlchemyError where it is away."""
        return is_migrated(self.engine)

    def is_of_one_service(self) -> bool:
        """Whether no other service works on this database: a file has one, a server may have several."""
        return self.engine.dialect.name == "sqlite"

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def open_workspace(database_url: str, *, seeds: bool = False) -> Workspace:
    """Return the stores on a database with its tables; ``seeds`` puts in what is shipped as it is used."""
    engine = create_database_engine(database_url)
    sessions = create_session_factory(engine)
    profiles = DatabaseProfileStore(sessions)
    return Workspace(
        engine=engine,
        plans=DatabasePlanStore(sessions),
        profiles=profiles,
        profile_chunks=DatabaseProfileChunkStore(sessions),
        devices=DatabaseDeviceStore(sessions),
        trials=DatabaseTrialStore(sessions),
        library=ProfileLibrary(store=profiles, seeds=seeds),
    )


def migrated_workspace(database_url: str) -> Workspace:
    """Return the stores on a database, migrated now; shipped profiles get into it as they are used."""
    workspace = open_workspace(database_url, seeds=True)
    migrate(workspace.engine)
    seed_devices(workspace.devices)
    return workspace


def prepare_workspace(database_url: str, *, on_work: Callable[[], None] | None = None) -> Workspace:
    """Return the stores on a migrated, seeded database; ``on_work`` is called where that takes seconds."""
    workspace = open_workspace(database_url)
    migrate(workspace.engine)
    seed_devices(workspace.devices)
    seed_profiles(workspace.profiles, on_work=on_work)
    return workspace
