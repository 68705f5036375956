"""``meshplan serve``: the HTTP API and the web form."""

import logging
import signal
import sys
from typing import Final

import click
import uvicorn

from api.app import create_app
from api.cli.outcome import ExitCode, problems_told
from api.cli.workspace import read_settings
from api.request_ids import RequestIdFilter
from api.settings import Settings

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"

EXAMPLES = """\b
Examples:
  meshplan serve
  meshplan serve --host 0.0.0.0 --port 8080
  MESHPLAN_DATABASE_URL=postgresql://meshplan@database/meshplan meshplan serve

The database is migrated first, and gets the published measurements.
"""


@click.command(epilog=EXAMPLES)
@click.option("--host", metavar="ADDRESS", help="Address to listen on. [default: MESHPLAN_HOST or 127.0.0.1]")
@click.option("--port", type=int, metavar="N", help="Port to listen on. [default: MESHPLAN_PORT or 8000]")
def command(host: str | None, port: int | None) -> None:
    """Serve the HTTP API and the web form until Ctrl-C."""
    with problems_told(as_json=False):
        settings = read_settings()
        _set_up_log(settings)
        # The server, once it has stopped in order, sends itself the signal again.
        signal.signal(signal.SIGTERM, _exit)
        uvicorn.run(
            create_app(settings),
            host=host or settings.host,
            port=settings.port if port is None else port,
            log_config=None,
            # Long requests end with the service; their state says so.
            timeout_graceful_shutdown=5,
        )


def _exit(_number: int, _frame: object) -> None:
    sys.exit(ExitCode.DONE)


def _set_up_log(settings: Settings) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    handler.addFilter(RequestIdFilter())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    # Which plugins a library has found tells nobody anything.
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)
