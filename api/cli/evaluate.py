"""``meshplan evaluate``: what a plan that the caller fixes would do."""

from typing import Any

import click

from api.cli.answer import answer_and_exit
from api.cli.documents import read_json, validated
from api.cli.outcome import problems_told
from api.cli.request_options import JSON_SUFFIX, OPTIONS, pairs, request_document, shared_options
from api.schemas.request import EvaluationRequestDocument

EXAMPLES = """\b
Examples:
  meshplan evaluate --model gpt-3-175b --cluster a100-sxm-80gb:64 --global-batch 64 --sequence 2048 \\
      --precision fp16 --plan tensor_parallel=8 --plan pipeline_parallel=8 --plan recompute=full
  meshplan evaluate --model llama-2-13b --cluster a100-sxm-40gb:8 --global-batch 64 --sequence 2048 \\
      --framework deepspeed --plan zero_stage=3 --offload optimizer=0.5
  meshplan evaluate REQUEST.json --json
  meshplan evaluate REQUEST.json --plan PLAN.json

REQUEST.json is a request as POST /v1/evaluations takes it, - is standard input; options are laid over it.
PLAN.json is a plan in the full or the short form, or a result that has one.
Exit codes: 0 it fits, 1 it does not fit, 2 bad input or
an illegal plan.
"""


@click.command(epilog=EXAMPLES)
@click.argument("request_file", required=False, metavar="[REQUEST.json|-]")
@shared_options
@click.option(
    "--plan",
    "plan_words",
    multiple=True,
    metavar="WORD=VALUE|PLAN.json",
    help="A choice of the plan, tensor_parallel=8 for one, or the plan as a file.",
)
@click.option(
    "--offload",
    multiple=True,
    metavar="STATE=SHARE",
    help="Keep a share on the host: optimizer=0.5; parameters, gradients, activations.",
)
@click.option("--json", "as_json", is_flag=True, help="Write the result document and nothing else.")
def command(
    request_file: str | None,
    plan_words: tuple[str, ...],
    offload: tuple[str, ...],
    as_json: bool,  # noqa: FBT001 - a flag of the command line
    **options: Any,  # noqa: ANN401 - the shared options, as click gives them
) -> None:
    """Predict time and memory of a plan of your own; an illegal one gets the rules that it breaks."""
    with problems_told(as_json=as_json, options=OPTIONS):
        document = request_document(request_file, options)
        if isinstance(document, dict):
            _lay_plan_over(document, plan_words)
            if offload:
                document["plan"]["offload"] = pairs("--offload", offload)
        answer_and_exit(validated(EvaluationRequestDocument, document), as_json=as_json)


def _lay_plan_over(document: dict[str, Any], plan_words: tuple[str, ...]) -> None:
    """Put a plan of options into a request: a file replaces the plan, words change it."""
    files = [text for text in plan_words if text.endswith(JSON_SUFFIX) and "=" not in text]
    if files:
        document["plan"] = _plan_in(read_json(files[-1]))
    words = pairs("--plan", [text for text in plan_words if text not in files])
    plan = document.setdefault("plan", {})
    if isinstance(plan, dict):
        plan |= words


def _plan_in(document: Any) -> Any:  # noqa: ANN401 - checked later
    """Return the plan of a result document; any other document is a plan itself."""
    is_result = isinstance(document, dict) and "request" in document and "plan" in document
    return document["plan"] if is_result else document
