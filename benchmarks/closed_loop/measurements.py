"""What was measured of the plans of one model, in a file: a plan that ran once does not run again."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

FILE: Final = "measurements.json"
Order = dict[str, Any]
"""What a trial is asked to run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One plan as it ran among others."""

    order: Order
    is_control: bool
    """Whether this is a copy of the control plan."""
    seconds: Sequence[float]
    """Of each step."""
    passes_seconds: float
    update_seconds: float
    """The two parts of a step, each on the rank where it took longest: medians."""
    peak_bytes: Sequence[float]
    """Of live tensors, of each stage."""
    process_bytes: float
    """Of the largest process of all, everything in it counted."""


def key_of(order: Order) -> str:
    """Return what tells plans apart."""
    return json.dumps(order, sort_keys=True)


def measurement_of(order: Order, found: dict[str, Any], *, is_control: bool) -> Measurement:
    """Return what a trial wrote of a plan."""
    memory = [stage["memory_bytes"] for stage in found["stages"]]
    steps = found["step_time"]
    return Measurement(
        order=order,
        is_control=is_control,
        seconds=steps["samples_seconds"],
        passes_seconds=steps["passes_seconds"],
        update_seconds=steps["update_seconds"],
        peak_bytes=[stage["peak_allocated"] for stage in memory],
        process_bytes=max(stage["process"] for stage in memory),
    )


def together(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return one measurement of each plan, all steps of several runs in it, and every control by itself."""
    found: list[Measurement] = []
    numbers: dict[str, int] = {}
    for one in measurements:
        number = len(found) if one.is_control else numbers.setdefault(key_of(one.order), len(found))
        if number == len(found):
            found.append(one)
        else:
            found[number] = replace(found[number], seconds=[*found[number].seconds, *one.seconds])
    return found


def read_measurements(folder: Path) -> list[Measurement]:
    """Return what earlier calls left in a folder."""
    path = folder / FILE
    return [Measurement(**row) for row in json.loads(path.read_text())] if path.exists() else []


def keep_measurements(folder: Path, measurements: Sequence[Measurement]) -> None:
    """Write all of them, at once: a call that is ended meanwhile leaves the file as it was."""
    fresh = folder / f"{FILE}.new"
    fresh.write_text(json.dumps(list(_rows(measurements))))
    fresh.replace(folder / FILE)


def _rows(measurements: Sequence[Measurement]) -> Iterator[dict[str, Any]]:
    for one in measurements:
        yield {name: getattr(one, name) for name in Measurement.__slots__}
