"""The service assembled: settings, stores, workers, routes, and what guards them."""

import logging
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI

from api.body_limit import BodyLimitMiddleware
from api.dependencies import Service
from api.jobs.desk import FrontDesk
from api.jobs.progress import ProgressFiles
from api.jobs.runner import PoolRunner, Runner, WorkerSettings
from api.openapi import describe
from api.pages.problem_pages import ProblemPagesMiddleware
from api.problems import UnexpectedErrorMiddleware, add_problem_handlers
from api.request_ids import RequestIdMiddleware
from api.routes import (
    calibrations,
    clusters,
    devices,
    evaluations,
    frameworks,
    health,
    models,
    pages,
    plans,
    profile_uploads,
    profiles,
)
from api.settings import Settings
from api.version import VERSION
from api.workspace import Workspace, prepare_workspace

log = logging.getLogger(__name__)

ROUTERS: Final = (
    plans.router,
    evaluations.router,
    models.router,
    clusters.router,
    devices.router,
    profiles.router,
    profiles.pages,
    profile_uploads.router,
    calibrations.router,
    frameworks.router,
    health.router,
)

MakeRunner = Callable[[Settings, Workspace, Path], Runner]
"""What starts a runner, given a folder for the progress of its searches."""


def start_pool(settings: Settings, workspace: Workspace, progress_folder: Path) -> Runner:
    """Return worker processes on the same database."""
    del workspace  # each worker opens its own
    worker = WorkerSettings(database_url=settings.database_url, progress_folder=progress_folder)
    return PoolRunner(worker, num_searches=settings.plan_workers)


def create_app(settings: Settings, *, make_runner: MakeRunner = start_pool) -> FastAPI:
    """Return the service; it opens, migrates and seeds its database when it starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workspace = prepare_workspace(settings.database_url, on_work=_say_first_use)
        with tempfile.TemporaryDirectory(prefix="meshplan-progress-") as folder:
            desk = _open_desk(settings, workspace, make_runner, progress_folder=Path(folder))
            app.state.service = Service(settings=settings, workspace=workspace, desk=desk)
            yield
            desk.close()
        workspace.close()

    app = FastAPI(title="meshplan", version=VERSION, lifespan=lifespan, redoc_url=None, docs_url=None)
    for router in ROUTERS:
        app.include_router(router)
    pages.add_pages(app)
    _add_guards(app, settings)
    describe(app)
    return app


def _say_first_use() -> None:
    log.info("putting the published measurements into the database, once")


def _open_desk(
    settings: Settings, workspace: Workspace, make_runner: MakeRunner, *, progress_folder: Path
) -> FrontDesk:
    desk = FrontDesk(
        plans=workspace.plans,
        runner=make_runner(settings, workspace, progress_folder),
        progress=ProgressFiles(folder=progress_folder),
        max_waiting=settings.max_queued_plans + settings.plan_workers,
    )
    if workspace.is_of_one_service():
        desk.cancel_abandoned()
    return desk


def _add_guards(app: FastAPI, settings: Settings) -> None:
    """Add what stands around every route, the innermost first."""

    def limit_of(path: str) -> int:
        is_profile = path.rstrip("/") == profiles.PATH
        return settings.max_profile_bytes if is_profile else settings.max_body_bytes

    add_problem_handlers(app)
    app.add_middleware(BodyLimitMiddleware, limit_of=limit_of)
    app.add_middleware(UnexpectedErrorMiddleware)
    app.add_middleware(ProblemPagesMiddleware)
    app.add_middleware(RequestIdMiddleware)
