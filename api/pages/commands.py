"""The commands that reproduce a result: the short form where it says everything, else the whole request."""

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

from api.schemas.request import EvaluationRequestDocument, PlanRequestDocument

SHORT_FORM: Final = {
    "model": {"preset"},
    "cluster": {"preset", "num_devices"},
    "job": {"global_batch_size", "sequence_length"},
}
"""What the options of ``meshplan plan`` can say."""


def without_defaults(request: Mapping[str, Any], *, is_evaluation: bool) -> dict[str, Any]:
    """Return a normalised request without what the service would fill in by itself."""
    schema = EvaluationRequestDocument if is_evaluation else PlanRequestDocument
    document = schema.model_validate(request)
    return document.model_dump(mode="json", exclude_defaults=True)


def curl_command(request: Mapping[str, Any], *, base_url: str, is_evaluation: bool) -> str:
    """Return the HTTP request of a result as a command."""
    path = "/v1/evaluations" if is_evaluation else "/v1/plans"
    url = shlex.quote(base_url.rstrip("/") + path)
    return f"curl {url} -H 'Content-Type: application/json' -H 'Prefer: wait=60' -d {_quoted(request)}"


def meshplan_command(request: Mapping[str, Any], *, is_evaluation: bool) -> str:
    """Return the command line of a result: with options where they can say it all."""
    if is_evaluation:
        return f"meshplan evaluate - <<'JSON'\n{json.dumps(request, indent=2)}\nJSON"
    if not _is_short(request):
        return f"meshplan plan - <<'JSON'\n{json.dumps(request, indent=2)}\nJSON"
    cluster = f"{request['cluster']['preset']}:{request['cluster']['num_devices']}"
    job = request["job"]
    options = ["--model", request["model"]["preset"], "--cluster", cluster]
    options += ["--global-batch", str(job["global_batch_size"])]
    if job.get("sequence_length") is not None:
        options += ["--sequence", str(job["sequence_length"])]
    return shlex.join(["meshplan", "plan", *options])


def _is_short(request: Mapping[str, Any]) -> bool:
    return set(request) <= set(SHORT_FORM) and all(
        set(request[part]) <= keys for part, keys in SHORT_FORM.items()
    )


def _quoted(request: Mapping[str, Any]) -> str:
    return shlex.quote(json.dumps(request, separators=(",", ":")))
