"""Where work runs: at once in this process, or in worker processes that are started ahead."""

import multiprocessing
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Final, Protocol

from api.jobs.limits import GRACE_SECONDS, limit_memory
from api.jobs.progress import ProgressFiles
from api.jobs.work import Work, perform
from api.stores.plans import PlanKind
from api.workspace import Workspace, open_workspace


class Runner(Protocol):
    """Something that answers stored requests."""

    def submit(self, work: Work) -> Future[None]:
        """Begin with a request, or queue it; the future is done when the store has the result."""
        ...

    def close(self) -> None:
        """Stop, whatever runs."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class InlineRunner:
    """Answers in the calling thread, before ``submit`` returns."""

    workspace: Workspace

    def submit(self, work: Work) -> Future[None]:
        """See `Runner.submit`."""
        done: Future[None] = Future()
        perform(work, plans=self.workspace.plans, library=self.workspace.library)
        done.set_result(None)
        return done

    def close(self) -> None:
        """See `Runner.close`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSettings:
    """What a worker process needs to know."""

    database_url: str
    progress_folder: Path


class PoolRunner:
    """Answers in worker processes, which keep profiles and the solver loaded between requests.

    Evaluations, which take milliseconds, have a process of their own and never wait behind a search.
    """

    def __init__(self, settings: WorkerSettings, *, num_searches: int) -> None:
        """Start the workers: so many searches run at the same time."""
        self._settings = settings
        self._num_workers = {PlanKind.PLAN: num_searches, PlanKind.EVALUATION: 1}
        # Requests come from one thread, what follows the death of a worker from another.
        self._lock = RLock()
        self._pools = {kind: self._start(kind) for kind in PlanKind}

    def submit(self, work: Work) -> Future[None]:
        """See `Runner.submit`; workers that died are replaced first."""
        with self._lock:
            try:
                return self._pools[work.kind].submit(_perform, work)
            except BrokenProcessPool:
                self._pools[work.kind] = self._start(work.kind)
                return self._pools[work.kind].submit(_perform, work)

    def close(self) -> None:
        """See `Runner.close`."""
        pools = list(self._pools.values())
        self._pools.clear()
        # A search may go on for its whole time limit, and nobody waits for it any more.
        for worker in multiprocessing.active_children():
            worker.terminate()
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)

    def _start(self, kind: PlanKind) -> ProcessPoolExecutor:
        pool = ProcessPoolExecutor(
            max_workers=self._num_workers[kind],
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(self._settings,),
        )
        for _ in range(self._num_workers[kind]):
            pool.submit(_is_ready)
        return pool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Desk:
    """What a worker process works with from its start to its end."""

    workspace: Workspace
    progress: ProgressFiles


_desks: Final[list[_Desk]] = []
"""The one desk of a worker process; empty in the service itself."""


def _start_worker(settings: WorkerSettings) -> None:
    # Ctrl-C reaches every process of the terminal; the service decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_memory()
    workspace = open_workspace(settings.database_url)
    _desks.append(_Desk(workspace=workspace, progress=ProgressFiles(folder=settings.progress_folder)))


def _is_ready() -> bool:
    """Return once the worker has started."""
    return bool(_desks)


def _perform(work: Work) -> None:
    desk = _desks[-1]
    perform(
        work,
        plans=desk.workspace.plans,
        library=desk.workspace.library,
        on_progress=desk.progress.writer(work.id),
        limit_seconds=work.request["solver"]["time_limit_seconds"] + GRACE_SECONDS,
    )
