"""The profiler as a process of its own: how it is started, and where it keeps what it finds."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from platformdirs import user_data_path
from sqlalchemy import make_url

from api.cli.outcome import ProblemError
from api.schemas.problem import FaultDocument, ProblemDocument
from planner.units import Seconds

FOLDER: Final = "profiles"
"""Beside the database: profiles that this machine measured, each with its journal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfilerRun:
    """What to measure, and into which file; a run that was killed goes on from what stands beside it."""

    output: Path
    name: str | None = None
    device: str = "auto"
    processes: int | None = None
    seconds_limit: Seconds | None = None
    request: Path | None = None
    load_seconds: Seconds | None = None
    drive_file: Path | None = None
    afresh: bool = False

    def arguments(self) -> list[str]:
        """Return the arguments of ``python -m profiler``."""
        said: dict[str, object] = {
            "output": self.output,
            "name": self.name,
            "device": self.device,
            "processes": self.processes,
            "seconds-limit": self.seconds_limit,
            "request": self.request,
            "load-seconds": self.load_seconds,
            "drive-file": self.drive_file,
        }
        options = [text for key, value in said.items() if value for text in (f"--{key}", str(value))]
        return [*options, *(["--afresh"] if self.afresh else [])]

    def of_shapes(self, request: Path, *, seconds_limit: Seconds | None) -> "ProfilerRun":
        """Return the run that measures a list of shapes besides what is there already."""
        return replace(self, request=request, seconds_limit=seconds_limit, load_seconds=None, afresh=False)

    def start(self) -> dict[str, Any]:
        """Measure, and return the profile document; the profiler tells its progress on standard error.

        Raises ProblemError where torch is missing or the profiler failed.
        """
        if find_spec("torch") is None:
            raise _problem("the profiler needs torch: pip install 'meshplan[profiler]'")
        self.output.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "profiler", *self.arguments()]
        ended = subprocess.run(command, stdout=sys.stderr, check=False)  # noqa: S603 - our own module
        if ended.returncode or not self.output.exists():
            raise _problem(f"the profiler ended with code {ended.returncode}: what it said stands above")
        document: dict[str, Any] = json.loads(self.output.read_text())
        return document


def usual_output(database_url: str, *, device: str, processes: int | None) -> Path:
    """Return where this machine keeps its profile: the same file for the same run, so that it refines it."""
    url = make_url(database_url)
    is_file = url.get_backend_name() == "sqlite" and url.database
    folder = Path(str(url.database)).parent if is_file else user_data_path("meshplan")
    return folder / FOLDER / f"{device}-{processes or 'all'}.json"


def _problem(detail: str) -> ProblemError:
    return ProblemError(ProblemDocument.of_faults([FaultDocument(pointer="", detail=detail)]))
