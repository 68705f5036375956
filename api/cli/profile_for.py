"""``meshplan profile --for``: measure what matters to a request, until its prediction settles."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from api.cli.profiler_process import ProfilerRun
from api.jobs.answering import resolve
from api.profile_library import LOCAL
from api.schemas.request import PlanRequestDocument
from api.workspace import Workspace
from planner.planning import PlanRequest
from planner.units import Seconds, format_seconds
from planner.wanted_shapes import WantedShapes, measured_in, wanted_shapes

SETTLED: Final = 0.01
"""Share of the step time by which a settled prediction still moves, and may still be off by what is left."""
FIRST_ROUND: Final = 32
"""Shapes of the first round; each one after that has twice as many."""
LADDER_SHARE: Final = 0.4
"""Of the time, what finding out about an unknown machine may take."""

Store = Callable[[dict[str, Any]], object]
"""Keeps a profile document, so that the next plan is made from it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """One measurement for a request: what is to be planned, how to measure, until when."""

    request: PlanRequestDocument
    run: ProfilerRun
    workspace: Workspace
    store: Store
    deadline: Seconds | None
    """On the monotonic clock; None: until everything that the search asks for is measured."""

    def seconds_left(self) -> Seconds | None:
        """Return the time that is left, None without a limit."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def is_over(self) -> bool:
        """Whether the time is up."""
        left = self.seconds_left()
        return left is not None and left <= 0


def measure_for(session: Session) -> dict[str, Any]:
    """Measure round by round what moves the best plans most; return the last profile document.

    Ends when the prediction has settled, when nothing is left to measure, or when time is up.
    """
    document = _first_profile(session)
    before: WantedShapes | None = None
    number = FIRST_ROUND
    while not session.is_over():
        wanted = wanted_shapes(_resolved(session))
        tried = frozenset() if document is None else measured_in(document)
        left = len(wanted.influence.keys() - tried)
        _tell(wanted, left=left, uncertainty=wanted.uncertainty(without=tried))
        if left == 0 or (before is not None and _has_settled(before, wanted, tried)):
            break
        document = _measured(session, wanted, tried, number)
        before, number = wanted, 2 * number
    assert document is not None
    return document


def _first_profile(session: Session) -> dict[str, Any] | None:
    """Measure the usual ladder where the request is about this machine and nothing is known of it."""
    cluster = session.request.cluster
    if cluster.preset != LOCAL or LOCAL in session.workspace.library.machines():
        return _earlier(session.run.output)
    left = session.seconds_left()
    limit = None if left is None else LADDER_SHARE * left
    document = replace(session.run, seconds_limit=limit).start()
    session.store(document)
    return document


def _earlier(output: Path) -> dict[str, Any] | None:
    if not output.exists():
        return None
    document: dict[str, Any] = json.loads(output.read_text())
    return document


def _resolved(session: Session) -> PlanRequest:
    return resolve(session.request, library=session.workspace.library).request


def _measured(session: Session, wanted: WantedShapes, tried: frozenset[Any], number: int) -> dict[str, Any]:
    """Measure the shapes that matter most among those that were not tried, and keep them."""
    first = [one for one in wanted.influence if one not in tried][:number]
    others = frozenset(wanted.influence) - frozenset(first)
    with TemporaryDirectory(prefix="meshplan-shapes-") as folder:
        path = Path(folder) / "shapes.json"
        path.write_text(json.dumps(wanted.to_document(without=others)))
        document = session.run.of_shapes(path, seconds_limit=session.seconds_left()).start()
    session.store(document)
    return document


def _has_settled(before: WantedShapes, now: WantedShapes, tried: frozenset[Any]) -> bool:
    """Whether the last round moved nothing, and what is left could not either."""
    if before.step_time_seconds is None or now.step_time_seconds is None:
        return before.mesh == now.mesh
    moved = abs(now.step_time_seconds / before.step_time_seconds - 1)
    return before.mesh == now.mesh and max(moved, now.uncertainty(without=tried)) <= SETTLED


def _tell(wanted: WantedShapes, *, left: int, uncertainty: float) -> None:
    predicted = (
        "no plan fits"
        if wanted.step_time_seconds is None
        else f"predicted {format_seconds(wanted.step_time_seconds)} a step, "
        f"± {uncertainty:.1%} by what was not measured"
    )
    click.echo(f"{predicted}; {left} shapes left", err=True)
