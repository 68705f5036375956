"""``python -m benchmarks.closed_loop``: whether plans run as they are predicted on this machine."""

import argparse
import json
import math
import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.closed_loop.figures import Trialled, choices, goals, overall, rows_of
from benchmarks.closed_loop.loop import Allowance, Effort, run_loop, say
from benchmarks.closed_loop.page import write_page
from benchmarks.closed_loop.scenarios import QUICK, UNSHAPED, WHOLE
from profiler.host import cpu_model, num_cores

MET, MISSED = 0, 1
ENDED_BY_SIGNAL = 128
EFFORT = Effort(kernel_seconds=50, link_seconds=15, run_seconds=20, rounds=6)
QUICK_EFFORT = Effort(kernel_seconds=30, link_seconds=10, run_seconds=25, rounds=5)

EPILOG = """\
It writes closed-loop.html, closed-loop.json and what it ran into DIR. Links of 10 Gbit, 1 Gbit and 100 Mbit
are network namespaces joined by veth pairs that `tc` shapes: they need root and iproute2; --without-links
leaves them out. Exit codes: 0 every goal is met, 1 one is missed. The whole takes some twenty minutes
on two cores that do nothing else.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the loop as the arguments say; print figures against goals; return the exit code."""
    arguments = _parser().parse_args(argv)
    # Leave by an exception, so that processes and namespaces are cleared away.
    signal.signal(signal.SIGTERM, _exit_on)
    folder: Path = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    scenarios = UNSHAPED if arguments.without_links else QUICK if arguments.quick else WHOLE
    if arguments.scenario:
        scenarios = tuple(one for one in scenarios if one.name in arguments.scenario)
    effort = QUICK_EFFORT if arguments.quick else EFFORT
    trialled: list[Trialled] = []
    allowance = Allowance(seconds=arguments.seconds)
    for one in run_loop(scenarios, effort, folder=folder, allowance=allowance):
        trialled.append(one)
        figures = one.figures()
        say(
            f"{one.name}: error {figures['time_median_error']:.1%} (noise {figures['noise']:.1%}), "
            f"tau {figures['least_tau']:.2f}, regret {_percent(figures['most_regret'])}, "
            f"peak {figures['peak_median_error']:.1%}; chosen {one.chosen.words}, "
            f"fastest {one.best.predicted.words}"
        )
        # What is there so far, should the next one be interrupted.
        document = _document(trialled)
        (folder / "closed-loop.json").write_text(json.dumps(document, indent=1))
        write_page(folder / "closed-loop.html", document, trialled)
    if not trialled:
        print("nothing has run yet")
        return MISSED
    _print(document)
    print(f"\n{folder / 'closed-loop.html'}")
    return MET if all(row["met"] for row in document["goals"]) else MISSED


def _document(trialled: Sequence[Trialled]) -> dict[str, Any]:
    figures = overall(trialled)
    return {
        "machine": {
            "device": cpu_model(),
            "cores": num_cores(),
            "torch": torch.__version__,
            "platform": platform.platform(),
            "load": os.getloadavg(),
        },
        "figures": figures,
        "goals": goals(figures),
        "choices": list(choices(trialled)),
        "runs": [{"figures": one.figures(), "rows": rows_of(one)} for one in trialled],
    }


def _print(document: dict[str, Any]) -> None:
    print(f"{'':34} {'plans':>6} {'noise':>6} {'error':>6} {'bias':>6} {'tau':>5} {'regret':>7} {'peak':>6}")
    for run in document["runs"]:
        row = run["figures"]
        name = f"{row['scenario']}: {row['model']}"
        print(
            f"{name:34} {row['plans']:6} {row['noise']:6.1%} {row['time_median_error']:6.1%} "
            f"{row['time_bias']:+6.0%} {row['least_tau']:5.2f} {_percent(row['most_regret']):>7} "
            f"{row['peak_median_error']:6.1%}"
        )
    print()
    for row in document["choices"]:
        print(
            f"{row['model']}, {row['ranks']} ranks, {row['link']}: "
            f"chosen {row['chosen']}; fastest {row['best']}"
        )
    print()
    for row in document["goals"]:
        sign = "<=" if row["at_most"] else ">="
        verdict = "met" if row["met"] else "MISSED"
        figure = "     -" if row["figure"] is None else f"{row['figure']:6.3f}"
        print(f"{row['goal']:44} {figure} {sign} {row['bound']:.3f}  {verdict}")


def _percent(share: float | None) -> str:
    """Return a share for people; that of a choice which has not run yet is not known."""
    return "-" if share is None else f"{share:.1%}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.closed_loop",
        description="Profile this machine, plan small transformers for it, run every legal plan and compare.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write")
    parser.add_argument("--quick", action="store_true", help="one model over two links, in about two minutes")
    parser.add_argument(
        "--without-links", action="store_true", help="the loopback alone, which needs no root"
    )
    parser.add_argument(
        "--scenario",
        action="append",
        choices=[one.name for one in WHOLE],
        help="only this one; may be given several times",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        metavar="S",
        help="begin no profile and no runs after so long; the next call with the same DIR goes on (0: only "
        "hold what DIR has against predictions)",
    )
    return parser


def _exit_on(number: int, _frame: object) -> None:
    sys.exit(ENDED_BY_SIGNAL + number)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(ENDED_BY_SIGNAL + signal.SIGINT)
