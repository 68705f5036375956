"""How far a search has come, for the page that waits for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages.quantities import count, seconds_scale, signed_percent
from api.pages.request_summary import RequestSummary, request_summary
from api.pages.verdict import Verdict, verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchProgress:
    """Bound, best plan so far, and meshes."""

    best: str
    lower_bound: str
    gap: str
    meshes_done: int
    meshes_total: int
    meshes: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingPage:
    """The page of a request without a result: one that is worked on, or that none will come of."""

    id: str
    request: RequestSummary
    verdict: Verdict
    is_open: bool
    progress: SearchProgress | None
    problem: str

    @property
    def title(self) -> str:
        """Return what the page is about."""
        return f"{self.request.model} on {self.request.machines}"


def waiting_page(document: Mapping[str, Any]) -> WaitingPage:
    """Return the page of a result document that has no result."""
    progress, problem = document.get("progress"), document.get("problem")
    return WaitingPage(
        id=str(document["id"]),
        request=request_summary(document["request"]),
        verdict=verdict(document),
        is_open=document["state"] in {"queued", "running"},
        progress=_search_progress(progress) if progress else None,
        problem=str(problem["detail"]) if problem else "",
    )


def _search_progress(progress: Mapping[str, Any]) -> SearchProgress:
    best, bound = progress["best_seconds"], progress["lower_bound_seconds"]
    total, left = progress["meshes_total"], progress["meshes_left"]
    return SearchProgress(
        best="none yet" if best is None else str(seconds_scale(best).quantity(best)),
        lower_bound=str(seconds_scale(bound).quantity(bound)),
        gap="" if not best or not bound else signed_percent(best / bound - 1),
        meshes_done=total - left,
        meshes_total=total,
        meshes=f"{count(left)} of {count(total)} left",
    )
