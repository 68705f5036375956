"""The environment, read once into one frozen object."""

from enum import StrEnum

from platformdirs import user_data_path
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class LogLevel(StrEnum):
    """How much the service writes about what it does, from most to least."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def default_database_url() -> str:
    """Return the URL of an SQLite file in the user's own data folder, the same from every folder."""
    return f"sqlite:///{user_data_path('meshplan') / 'meshplan.sqlite3'}"


class Settings(BaseSettings):
    """What the environment says; each field is a variable of its name with the prefix ``MESHPLAN_``."""

    model_config = SettingsConfigDict(env_prefix="MESHPLAN_", frozen=True)

    database_url: str = Field(default_factory=default_database_url)
    """``sqlite:///FILE`` or ``postgresql://USER@HOST/DATABASE``."""
    host: str = "127.0.0.1"
    """Address that the service listens on."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port that the service listens on; 0 takes any free one."""
    log_level: LogLevel = LogLevel.INFO
    max_body_bytes: int = Field(default=2 * 2**20, gt=0)
    """Largest request that is read; a larger one is refused before it is parsed."""
    max_profile_bytes: int = Field(default=64 * 2**20, gt=0)
    """Largest profile that is read, in place of ``max_body_bytes``."""
    plan_workers: int = Field(default=1, gt=0)
    """Processes that plan at the same time."""
    max_queued_plans: int = Field(default=100, gt=0)
    """Requests that may wait for a worker; more are refused until some are done."""
    max_time_limit_seconds: float = Field(default=3600.0, gt=0)
    """Longest search that a request may ask for."""
    max_wait_seconds: float = Field(default=60.0, ge=0)
    """Longest that a request may be held open for its result (``Prefer: wait=N``)."""
