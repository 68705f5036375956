"""A plan page, put together from a result document and the events of its replay."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.pages.alternatives import AlternativeRow, alternative_rows
from api.pages.citations import Citation, citation
from api.pages.command_line import meshplan_command
from api.pages.headline import Figure, headline
from api.pages.http_request import curl_command, without_defaults
from api.pages.memory_chart import MemoryChart, memory_chart
from api.pages.plan_words import Tile, axis_tiles, choice_tiles, plan_sentences, world_size
from api.pages.proof import CertificateView, ProvenanceView, certificate_view, provenance_view
from api.pages.quantities import count
from api.pages.request_summary import RequestSummary, request_summary
from api.pages.sensitivity import SensitivityRow, sensitivity_rows
from api.pages.shortage import (
    NearestFitView,
    ShortageRow,
    ViolationRow,
    nearest_fit_view,
    shortage_rows,
    violation_rows,
)
from api.pages.stage_table import StageRow, stage_rows
from api.pages.time_chart import TimeChart, time_chart
from api.pages.timeline import TimelineDrawing, timeline_drawing
from api.pages.verdict import Verdict, verdict
from planner.job import Constraints
from planner.plan import TimelineEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanView:
    """The plan itself, as numbers and in words."""

    axes: tuple[Tile, ...]
    choices: tuple[Tile, ...]
    sentences: tuple[str, ...]
    num_devices: str
    stages: tuple[StageRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictionView:
    """What the plan would do: numbers and charts."""

    figures: tuple[Figure, ...]
    time: TimeChart
    memory: MemoryChart | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """How to get the same answer again."""

    meshplan: str
    curl: str
    request_json: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanPage:
    """Everything that the page of a finished request shows; what the result lacks is None or empty."""

    id: str
    is_evaluation: bool
    request: RequestSummary
    verdict: Verdict
    plan: PlanView | None
    prediction: PredictionView | None
    timeline: TimelineDrawing | None
    citations: tuple[Citation, ...]
    alternatives: tuple[AlternativeRow, ...]
    sensitivity: tuple[SensitivityRow, ...]
    certificate: CertificateView | None
    provenance: ProvenanceView | None
    shortage: tuple[ShortageRow, ...]
    nearest_fit: NearestFitView | None
    violations: tuple[ViolationRow, ...]
    warnings: tuple[str, ...]
    reproduction: Reproduction
    result_json: str
    version: str

    @property
    def api_path(self) -> str:
        """Return where the same result is for programs."""
        return f"/v1/{'evaluations' if self.is_evaluation else 'plans'}/{self.id}"

    @property
    def title(self) -> str:
        """Return what the page is about."""
        return f"{self.request.model} on {self.request.machines}"


def plan_page(
    document: Mapping[str, Any], *, is_evaluation: bool, timeline: Sequence[TimelineEvent], base_url: str
) -> PlanPage:
    """Return the page of a result document; ``timeline`` is empty where there is nothing to draw."""
    request = document["request"]
    return PlanPage(
        id=str(document["id"]),
        is_evaluation=is_evaluation,
        request=request_summary(request),
        verdict=verdict(document),
        plan=_plan_view(document),
        prediction=_prediction_view(document),
        timeline=timeline_drawing(timeline),
        citations=tuple(map(citation, document.get("explanation") or ())),
        alternatives=alternative_rows(document),
        sensitivity=sensitivity_rows(document),
        certificate=certificate_view(document.get("certificate")),
        provenance=provenance_view(document),
        shortage=shortage_rows(document),
        nearest_fit=nearest_fit_view(document),
        violations=violation_rows(document),
        warnings=tuple(document.get("warnings") or ()),
        reproduction=_reproduction(request, is_evaluation=is_evaluation, base_url=base_url),
        result_json=json.dumps(document, indent=2),
        version=document["version"],
    )


def _plan_view(document: Mapping[str, Any]) -> PlanView | None:
    plan = document.get("plan")
    if not plan:
        return None
    return PlanView(
        axes=axis_tiles(plan),
        choices=choice_tiles(plan),
        sentences=plan_sentences(plan),
        num_devices=count(world_size(plan)),
        stages=stage_rows(plan, document.get("prediction")),
    )


def _prediction_view(document: Mapping[str, Any]) -> PredictionView | None:
    prediction = document.get("prediction")
    if not prediction:
        return None
    constraints = document["request"].get("constraints") or {}
    fraction = constraints.get("memory_fraction") or Constraints().memory_fraction
    memory = prediction.get("memory")
    return PredictionView(
        figures=headline(prediction),
        time=time_chart(prediction),
        memory=memory_chart(memory, memory_fraction=fraction) if memory else None,
    )


def _reproduction(request: Mapping[str, Any], *, is_evaluation: bool, base_url: str) -> Reproduction:
    short = without_defaults(request, is_evaluation=is_evaluation)
    return Reproduction(
        meshplan=meshplan_command(short, is_evaluation=is_evaluation),
        curl=curl_command(short, base_url=base_url, is_evaluation=is_evaluation),
        request_json=json.dumps(request, indent=2),
    )
