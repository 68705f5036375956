"""``meshplan plan``: the fastest way to train a model on some machines."""

from typing import Any

import click

from api.cli.answer import answer_and_exit
from api.cli.documents import validated
from api.cli.outcome import problems_told
from api.cli.request_options import OPTIONS, add_constraints, request_document, shared_options
from api.schemas.request import PlanRequestDocument

EXAMPLES = """\b
Examples:
  meshplan plan --model llama-3-70b --cluster h100-sxm:64 --global-batch 1024 --sequence 8192
  meshplan plan --model llama-2-7b --cluster a100-sxm-40gb:8 --global-batch 8 --sequence 2048 --forbid offload
  meshplan plan --model config.json --cluster local:2 --global-batch 8 --sequence 256 --precision fp32
  meshplan plan --model vit-h-14 --cluster a100-sxm-80gb:8 --global-batch 1024 --images 1
  meshplan plan --model llama-2-7b --cluster l40s:1 --global-batch 16 --sequence 2048 --framework pytorch \\
      --job trainable='{"kind": "lora", "rank": 16, "base_dtype": "nf4"}'
  meshplan plan REQUEST.json --fix tensor_parallel=8 --bound pipeline_parallel=1..8 --json
  cat REQUEST.json | meshplan plan - --time-limit 5
  meshplan plan REQUEST.json --fix tensor_parallel=8 --explain --sensitivity

REQUEST.json is a request as POST /v1/plans takes it, - is standard input; options are laid over it.
Exit codes: 0 a plan, 1 nothing fits, 2 bad input, 3 the time limit ended the search without any plan.
"""


@click.command(epilog=EXAMPLES)
@click.argument("request_file", required=False, metavar="[REQUEST.json|-]")
@shared_options
@click.option("--fix", multiple=True, metavar="WORD=VALUE", help="Fix a choice: tensor_parallel=8.")
@click.option(
    "--bound", multiple=True, metavar="WORD=LOW..HIGH", help="Bound a choice: pipeline_parallel=1..8."
)
@click.option(
    "--offload", multiple=True, metavar="STATE=SHARE", help="Fix a share on the host: optimizer=0.5."
)
@click.option("--forbid", multiple=True, metavar="TECHNIQUE", help="Do without: offload, recompute, …")
@click.option("--allow", multiple=True, metavar="CONSENT", help="Consent to: quantized_communication, …")
@click.option("--time-limit", type=float, metavar="SECONDS", help="End the search then. [default: 30]")
@click.option("--relative-gap", type=float, metavar="X", help="Gap that is good enough. [default: 0]")
@click.option("--explain", is_flag=True, default=None, help="Solve again without each limit that may bind.")
@click.option(
    "--sensitivity",
    is_flag=True,
    default=None,
    help="Solve again with more memory, network, devices and sequence.",
)
@click.option("--json", "as_json", is_flag=True, help="Write the result document and nothing else.")
def command(
    request_file: str | None,
    fix: tuple[str, ...],
    bound: tuple[str, ...],
    offload: tuple[str, ...],
    forbid: tuple[str, ...],
    allow: tuple[str, ...],
    as_json: bool,  # noqa: FBT001 - a flag of the command line
    **options: Any,  # noqa: ANN401 - the shared options, as click gives them
) -> None:
    """Find the fastest way to train a model on some machines, with a proof that no plan is faster."""
    with problems_told(as_json=as_json, options=OPTIONS):
        document = request_document(request_file, options)
        add_constraints(document, fix=fix, bound=bound, offload=offload, forbid=forbid, allow=allow)
        answer_and_exit(validated(PlanRequestDocument, document), as_json=as_json)
