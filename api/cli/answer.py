"""A request answered in this process: progress on the terminal, the result stored and written."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from rich.console import Console

from api.cli.outcome import EXIT_CODES, write_json
from api.cli.report import write_report
from api.cli.workspace import opened_workspace
from api.jobs.answering import OnProgress, answer
from api.jobs.limits import GRACE_SECONDS, time_limited
from api.schemas.request import AnyRequestDocument, EvaluationRequestDocument
from api.schemas.result import ResultDocument
from api.stores.plans import PlanKind, PlanState
from api.workspace import Workspace
from planner.planning import Progress
from planner.units import format_seconds


def answer_and_exit(document: AnyRequestDocument, *, as_json: bool) -> None:
    """Answer a request, write the result, and end with the code that says how it ended."""
    with opened_workspace() as workspace:
        limit_seconds = document.solver.time_limit_seconds + GRACE_SECONDS
        with _progress_shown() as on_progress, time_limited(limit_seconds):
            result = answer(document, result_id=uuid4(), library=workspace.library, on_progress=on_progress)
        written = result.model_dump(mode="json")
        _store(document, result, written, workspace=workspace)
    if as_json:
        write_json(written)
    else:
        write_report(written)
    assert result.status is not None
    sys.exit(EXIT_CODES[result.status])


def _store(
    document: AnyRequestDocument, result: ResultDocument, written: dict[str, Any], *, workspace: Workspace
) -> None:
    """Keep the result, so that the web page of its id shows it."""
    is_evaluation = isinstance(document, EvaluationRequestDocument)
    workspace.plans.add(
        written["request"],
        kind=PlanKind.EVALUATION if is_evaluation else PlanKind.PLAN,
        state=PlanState.DONE,
        status=result.status,
        result=written,
        plan_id=result.id,
    )


@contextmanager
def _progress_shown() -> Iterator[OnProgress]:
    """Show on standard error how far the search is, where that is a terminal."""
    console = Console(stderr=True)
    with console.status("planning") as status:

        def show(progress: Progress) -> None:
            status.update(_progress_line(progress))

        yield show


def _progress_line(progress: Progress) -> str:
    best = "no plan yet" if progress.best_seconds is None else format_seconds(progress.best_seconds)
    done = progress.meshes_total - progress.meshes_left
    return (
        f"planning: best {best}, bound {format_seconds(progress.lower_bound_seconds)}, "
        f"{done:,} of {progress.meshes_total:,} meshes"
    )
