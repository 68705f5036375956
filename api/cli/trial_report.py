"""What a trial measured, held against what was predicted, part by part."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from planner.units import format_bytes, format_seconds

Document = Mapping[str, Any]

SHARE_OF_AXIS: Final = {
    "tensor": "tensor_parallel",
    "data": "data_parallel",
    "pipeline": "pipeline",
}
"""The part of a predicted step that a mesh axis's collectives belong to."""
STATES: Final = ("parameters", "gradients", "optimizer")
COMPUTE, OPTIMIZER, REMAINDER = "compute", "optimizer", "remainder"
REMAINDER_PARTS: Final = ("bubble", "overhead")
"""What is no operator: waiting for other stages, and what the host takes between operators."""
SAME_SHARE: Final = 0.01
"""Bytes that differ by less are told as equal."""


def trial_report(result: Document, measured: Document, *, planned_device: str) -> dict[str, Any]:
    """Return predicted against measured: step time and its parts, memory by stage, and what explains it.

    ``result`` is the document of the plan's result, ``measured`` one that ``profiler.trial`` wrote.
    """
    prediction = result["prediction"]
    parts = list(_parts(prediction["breakdown_seconds"], measured))
    memory = list(_memory(prediction["memory"], measured["stages"]))
    return {
        "result_id": result["id"],
        "planned_device": planned_device,
        "device": measured["device"],
        "step_time": {
            "predicted_seconds": prediction["step_time_seconds"],
            "predicted_interval_seconds": prediction["step_time_interval_seconds"],
            "measured_seconds": measured["step_time"]["median_seconds"],
            "spread_seconds": measured["step_time"]["spread_seconds"],
        },
        "parts": parts,
        "memory": memory,
        "numerics": measured["numerics"],
        "explanation": [
            *_time_words(parts, measured),
            *_memory_words(memory, measured["stages"]),
            *_host_words(prediction, measured),
        ],
        "warnings": list(_warnings(result, measured, planned_device)),
        "request": result["request"],
        "plan": result["plan"],
        "measured": measured,
    }


def _parts(predicted: Document, measured: Document) -> Iterator[dict[str, Any]]:
    """Yield each part of a step: predicted what is exposed, measured what operators take by themselves."""
    stage = _busiest_stage(measured["stages"])
    found: dict[str, float] = dict.fromkeys((COMPUTE, *SHARE_OF_AXIS.values(), OPTIMIZER), 0.0)
    for row in stage["operators"]:
        found[OPTIMIZER if row["phase"] == "optimizer" else COMPUTE] += row["seconds"]
    for row in stage["communication"]:
        found[SHARE_OF_AXIS.get(row["axis"], "data_parallel")] += row["seconds"]
    expected = {name: predicted.get(name, 0.0) for name in found}
    expected[COMPUTE] += predicted.get("recompute", 0.0)
    expected[REMAINDER] = sum(predicted.get(name, 0.0) for name in REMAINDER_PARTS)
    found[REMAINDER] = measured["step_time"]["median_seconds"] - sum(found.values())
    for name, seconds in found.items():
        yield {"part": name, "predicted_seconds": expected[name], "measured_seconds": seconds}


def _memory(predicted: Sequence[Document], stages: Sequence[Document]) -> Iterator[dict[str, Any]]:
    """Yield states and peak of each stage, on its rank with most of it."""
    for expected, stage in zip(predicted, stages, strict=True):
        found = stage["memory_bytes"]
        for name in STATES:
            yield _memory_row(stage, name, expected["breakdown_bytes"][name], found[name])
        peak = expected["peak_allocated_bytes"]
        yield _memory_row(stage, "peak_allocated", peak, found["peak_allocated"])


def _memory_row(stage: Document, name: str, predicted: float, measured: float) -> dict[str, Any]:
    return {
        "stage": stage["stage"],
        "part": name,
        "predicted_bytes": predicted,
        "measured_bytes": measured,
    }


def _time_words(parts: Iterable[Document], measured: Document) -> Iterator[str]:
    """Say which part explains most of the difference, and which operator or link most of that part."""
    # A remainder below zero is what the step hides and what timed alone is counted: it explains nothing.
    told = (row for row in parts if row["part"] != REMAINDER or row["measured_seconds"] > 0)
    furthest = max(told, key=lambda row: abs(row["measured_seconds"] - row["predicted_seconds"]))
    name = furthest["part"]
    words = (
        f"most of the difference in time is {name.replace('_', ' ')}: "
        f"{format_seconds(furthest['predicted_seconds'])} predicted, "
        f"{format_seconds(furthest['measured_seconds'])} measured"
    )
    longest = _longest(name, _busiest_stage(measured["stages"]))
    yield f"{words}; {longest}" if longest else words


def _longest(part: str, stage: Document) -> str | None:
    """Return the operator or the link that takes most of a part; None where it has none."""
    if part in {COMPUTE, OPTIMIZER}:
        wanted = (
            (row["operator"], row)
            for row in stage["operators"]
            if (row["phase"] == OPTIMIZER) == (part == OPTIMIZER)
        )
    else:
        wanted = (
            (f"{row['operation']} over {part.replace('_', ' ')} ranks", row)
            for row in stage["communication"]
            if SHARE_OF_AXIS.get(row["axis"]) == part
        )
    name, row = max(wanted, key=lambda entry: entry[1]["seconds"], default=(None, None))
    if row is None:
        return None
    size = format_bytes(row["bytes"])
    return f"{name} takes {format_seconds(row['seconds'])} of it in {row['calls']} calls, {size} in all"


def _memory_words(memory: Sequence[Document], stages: Sequence[Document]) -> Iterator[str]:
    """Say where states and peak differ most from what was predicted."""
    for kinds, noun in ((STATES, "states"), (("peak_allocated",), "peak")):
        rows = [row for row in memory if row["part"] in kinds]
        furthest = max(rows, key=_share_of_difference)
        if _share_of_difference(furthest) < SAME_SHARE:
            yield f"the bytes of the {noun} are as predicted"
            continue
        words = (
            f"{furthest['part'].replace('_', ' ')} of stage {furthest['stage']}: "
            f"{format_bytes(furthest['predicted_bytes'])} predicted, "
            f"{format_bytes(furthest['measured_bytes'])} measured"
        )
        yield words + (_place_of_peak(stages[furthest["stage"]]) if noun == "peak" else "")


def _host_words(prediction: Document, measured: Document) -> Iterator[str]:
    """Say what rests on the hosts: measured on all ranks, predicted for each node."""
    stages = measured["stages"]
    of_rank = sum(stage["memory_bytes"].get("on_host", 0.0) for stage in stages) / len(stages)
    if of_rank:
        predicted = sum(host["memory_bytes_per_node"] for host in prediction["host"])
        yield (
            f"states on the host: {format_bytes(predicted)} predicted for a node, "
            f"{format_bytes(of_rank)} measured on a rank, {format_bytes(of_rank * measured['ranks'])} on all"
        )


def _place_of_peak(stage: Document) -> str:
    found = stage["memory_bytes"]
    if found["peak_allocated"] > found["peak_of_passes"]:
        return f", in the update: the passes have {format_bytes(found['peak_of_passes'])}"
    return ", in the passes"


def _share_of_difference(row: Document) -> float:
    larger = max(row["predicted_bytes"], row["measured_bytes"])
    return abs(row["measured_bytes"] - row["predicted_bytes"]) / larger if larger else 0.0


def _busiest_stage(stages: Sequence[Document]) -> Document:
    """Return the stage whose operators take longest."""
    return max(stages, key=lambda stage: sum(row["seconds"] for row in stage["operators"]))


def _warnings(result: Document, measured: Document, planned_device: str) -> Iterator[str]:
    if measured["device"] != planned_device:
        yield f"planned for {planned_device}, run on {measured['device']}: times do not compare"
    if measured["numerics"]["agree"] is False:
        yield "the losses are not those of one process: the plan was not run as it says"
    framework = result["request"]["job"]["framework"]
    if framework not in {"pytorch", "torchtitan", "any"}:
        yield f"predicted for {framework}, run with torch's own parallelism"
