"""``python -m profiler.trial``: run plans for some steps on processes of this machine, or under torchrun."""

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from profiler.backend import detect_kind, num_devices
from profiler.processes import Place, place_from_torchrun, spawn
from profiler.trial.errors import PlanCannotRun
from profiler.trial.order import TrialOrder, read_order
from profiler.trial.run import COMPARED_STEPS, TrialSettings, run_orders

RAN, DIED, BAD_INPUT = 0, 1, 2

EXAMPLES = """\
examples:
  python -m profiler.trial ORDER.json --output measured.json
  torchrun --nproc-per-node 8 -m profiler.trial ORDER.json --output measured.json --steps 10

An order has the chain of layers, a plan in its full form, and what the run needs of the job; `meshplan trial`
writes it. The output is a list with one entry for each order. Exit codes: 0 ran, 1 a process died, 2 bad
input, or a plan with something that a trial does not have.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plans as the arguments say and return the exit code."""
    arguments = _parser().parse_args(argv)
    place = place_from_torchrun()
    settings = TrialSettings(
        warm_up_steps=arguments.warm_up_steps,
        steps=arguments.steps,
        has_reference=not arguments.without_reference,
        in_turn=arguments.in_turn,
        has_account=not arguments.without_account,
    )
    try:
        orders = [read_order(json.loads(path.read_text())) for path in arguments.orders]
        kind, processes = detect_kind(arguments.device), _num_ranks(orders)
        if place is None:
            _require_devices(kind, processes)
        work = partial(run_orders, orders, settings, kind, arguments.output.resolve())
        if place is not None:
            work(place, "env://")
        elif processes == 1:
            work(Place(), "")
        else:
            spawn(work, processes=processes)
    except (PlanCannotRun, ValueError) as error:
        sys.stderr.write(f"trial: {error}\n")
        return BAD_INPUT
    except (ProcessExitedException, ProcessRaisedException) as error:
        sys.stderr.write(f"{error}\ntrial: {_last_line(error)}\n")
        return BAD_INPUT if PlanCannotRun.__name__ in str(error) else DIED
    return RAN


def _num_ranks(orders: Sequence[TrialOrder]) -> int:
    """Return how many ranks all plans have; PlanCannotRun where they differ."""
    sizes = {order.mesh.world_size for order in orders}
    if len(sizes) != 1:
        raise PlanCannotRun(f"plans of one trial have one number of ranks, these have {sorted(sizes)}")
    return sizes.pop()


def _require_devices(kind: str, processes: int) -> None:
    """Refuse more ranks than there are accelerators here; a core may run several."""
    here = num_devices(kind)
    if kind != "cpu" and processes > here:
        raise PlanCannotRun(
            f"{processes} ranks need as many accelerators and {here} are here: start them by torchrun on "
            "several nodes, or take --device cpu"
        )


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].partition("PlanCannotRun: ")[2] or "a process died"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m profiler.trial",
        description="Run plans for some steps and write what was measured.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("orders", type=Path, nargs="+", metavar="ORDER.json", help="the plans to run")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="what was measured (JSON)")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="steps that are timed")
    parser.add_argument(
        "--warm-up-steps", type=int, default=COMPARED_STEPS, metavar="N", help="steps before them"
    )
    parser.add_argument(
        "--in-turn", action="store_true", help="a step of each plan in turn, rather than plan by plan"
    )
    parser.add_argument(
        "--without-reference", action="store_true", help="do not run the model in one process as well"
    )
    parser.add_argument(
        "--without-account", action="store_true", help="do not time each operator by itself in further steps"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="what to run on")
    return parser


if __name__ == "__main__":
    sys.exit(main())
