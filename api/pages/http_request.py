"""A request as little as says it all, and the HTTP request that asks for it."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from api.schemas.request import EvaluationRequestDocument, PlanRequestDocument


def without_defaults(request: Mapping[str, Any], *, is_evaluation: bool) -> dict[str, Any]:
    """Return a normalised request without what the service would fill in by itself."""
    schema = EvaluationRequestDocument if is_evaluation else PlanRequestDocument
    document = schema.model_validate(request)
    said = document.model_dump(mode="json", exclude_defaults=True)
    if said["job"].get("attention") == document.job.default_attention():
        del said["job"]["attention"]
    return said


def curl_command(request: Mapping[str, Any], *, base_url: str, is_evaluation: bool) -> str:
    """Return the HTTP request of a result as a command."""
    path = "/v1/evaluations" if is_evaluation else "/v1/plans"
    url = shlex.quote(base_url.rstrip("/") + path)
    return f"curl {url} -H 'Content-Type: application/json' -H 'Prefer: wait=60' -d {_quoted(request)}"


def _quoted(request: Mapping[str, Any]) -> str:
    return shlex.quote(json.dumps(request, separators=(",", ":")))
