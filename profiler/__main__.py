"""``python -m profiler``: measure this machine and write one profile document."""

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from planner.units import Seconds
from profiler.backend import detect_kind, num_devices
from profiler.journal import OtherMachine
from profiler.measuring import Order, run
from profiler.processes import Place, place_from_torchrun, spawn
from profiler.shapes import read_shapes

MEASURED, NOTHING_MEASURED, BAD_INPUT = 0, 1, 2

USUAL_LOAD_SECONDS: Seconds = 60.0
"""An accelerator is warm and at the clock that it keeps after less."""
LOAD_SHARE = 0.2
"""Of the time for all, what the load may take."""

ENDED_BY_SIGNAL = 128
"""A shell adds this to the number of the signal that ended a command."""

EXAMPLES = """\
examples:
  python -m profiler --output here.json
      the default ladder, on every accelerator or on two processes that share the processor
  python -m profiler --output here.json --processes 4 --seconds-limit 30
      four processes at once, each with a quarter of the cores, within half a minute or so
  python -m profiler --output here.json --request shapes.json
      what the planner wants: {"format": "meshplan-shapes/1",
       "kernels": [{"operator": "matrix_product", "dtype": "fp32", "phase": "forward",
                    "shape": {"m": 512, "n": 1024, "k": 1024}}],
       "collectives": [{"operation": "all_reduce", "world_size": 2, "payload_bytes": 1048576}]}
  torchrun --nproc-per-node 8 --nnodes 2 ... -m profiler --output here.json
      under torchrun, which says how many processes there are

  python -m profiler --output here.json --drive-file /scratch/profile.tmp
      also read and write 1 GiB of a drive, through a new file that is deleted afterwards

Results are written as they come, every sample in a journal beside the profile: a run that is killed
goes on when it is started again, and once it has ended the next one refines it. What cannot be
measured, for want of memory or time, stands with its reason under facts.skipped. Exit codes: 0
measured, 1 nothing measured or a process died, 2 bad input.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure as the arguments say and return the exit code."""
    arguments = _parser().parse_args(argv)
    place = place_from_torchrun()
    try:
        order = _order(arguments)
        processes = _num_processes(arguments.processes, order.kind, place=place)
    except ValueError as error:
        sys.stderr.write(f"profiler: {error}\n")
        return BAD_INPUT
    try:
        _measure(order, processes, place=place)
    except OtherMachine as error:
        sys.stderr.write(f"profiler: {error}\n")
        return BAD_INPUT
    except (ProcessExitedException, ProcessRaisedException) as error:
        sys.stderr.write(f"profiler: a process died; what was measured is in {order.output}\n{error}\n")
        return NOTHING_MEASURED
    return _exit_code(order.output) if place is None or place.rank == 0 else MEASURED


def _measure(order: Order, processes: int, *, place: Place | None) -> None:
    """Take this process's place among those that torchrun started, else start what is needed."""
    if place is not None:
        run(order, place, "env://")
    elif processes == 1:
        run(order, Place(), "")
    else:
        spawn(partial(run, order), processes=processes)


def _order(arguments: argparse.Namespace) -> Order:
    folder = arguments.output.resolve().parent
    _require(folder.is_dir(), f"no folder {folder} to write {arguments.output.name} in")
    _require(os.access(folder, os.W_OK), f"{folder} cannot be written to")
    kind = detect_kind(arguments.device)
    return Order(
        output=arguments.output.resolve(),
        kind=kind,
        name=arguments.name,
        shapes=read_shapes(arguments.request) if arguments.request else None,
        seconds_limit=arguments.seconds_limit,
        load_seconds=_load_seconds(arguments, kind),
        drive_file=arguments.drive_file,
        afresh=arguments.afresh,
    )


def _load_seconds(arguments: argparse.Namespace, kind: str) -> Seconds:
    """Return how long to load the devices: accelerators for a minute, where no list of shapes was given."""
    if arguments.load_seconds is not None:
        return float(arguments.load_seconds)
    if kind == "cpu" or arguments.request:
        return 0.0
    limit = arguments.seconds_limit
    return USUAL_LOAD_SECONDS if limit is None else min(USUAL_LOAD_SECONDS, LOAD_SHARE * limit)


def _num_processes(wanted: int | None, kind: str, *, place: Place | None) -> int:
    """Return one process per accelerator, on a processor two, so that there is a link to measure."""
    if place is not None:
        _require(wanted in {None, place.world_size}, f"torchrun started {place.world_size} processes")
        return place.world_size
    here = num_devices(kind)
    if kind == "cuda":
        _require((wanted or 1) <= here, f"{wanted} processes for {here} devices")
        return wanted or here
    return wanted or min(2, here)


def _exit_code(output: Path) -> int:
    profile = json.loads(output.read_text())
    measured = (profile["kernels"], profile["collectives"], profile["transfers"])
    return MEASURED if any(measured) else NOTHING_MEASURED


def _require(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not condition:
        raise ValueError(message)


def _exit_on(number: int, _frame: object) -> None:
    sys.exit(ENDED_BY_SIGNAL + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m profiler",
        description="Measure kernels and links of this machine and write one profile document.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="the profile to write (JSON)"
    )
    parser.add_argument(
        "--request", type=Path, metavar="SHAPES.json", help="shapes to measure (default: a ladder)"
    )
    parser.add_argument("--processes", type=_count, metavar="N", help="processes that measure at once")
    parser.add_argument(
        "--seconds-limit",
        type=_seconds,
        metavar="S",
        help="about how long to measure, start-up aside (default: until done)",
    )
    parser.add_argument(
        "--load-seconds",
        type=_seconds,
        metavar="S",
        help="load the devices for so long first and keep the rate that they sustain (default: accelerators "
        "for a minute, processors not)",
    )
    parser.add_argument(
        "--drive-file",
        type=Path,
        metavar="FILE",
        help="a new file on the drive whose rate is wanted; it is deleted afterwards",
    )
    parser.add_argument(
        "--afresh", action="store_true", help="forget what earlier runs left beside the profile"
    )
    parser.add_argument("--name", help="name of the profile (default: DEVICE/measured)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="what to measure")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, is {number}")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, is {text}")
    return number


if __name__ == "__main__":
    # Leave by an exception, so that processes and files of this run are cleared away.
    signal.signal(signal.SIGTERM, _exit_on)
    signal.signal(signal.SIGINT, _exit_on)
    sys.exit(main())
