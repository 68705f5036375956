"""The numbers that a plan page begins with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api.pages.memory_chart import worst_stage
from api.pages.quantities import bytes_scale, percent, rate, rounded_count, seconds_scale


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One large number, its unit, and a line below it."""

    key: str
    name: str
    number: str
    unit: str
    note: str


def headline(prediction: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Return step time, throughput, utilisation and memory of a prediction."""
    return tuple(_figures(prediction))


def _figures(prediction: Mapping[str, Any]) -> Iterator[Figure]:
    yield _step_time(prediction)
    yield _throughput(prediction)
    flops = rate(prediction["model_flops_per_second_per_device"], "FLOP/s")
    yield Figure(
        key="mfu",
        name="Model FLOP utilisation",
        number=f"{prediction['mfu'] * 100:.1f}",
        unit="%",
        note=f"{flops} per device",
    )
    if prediction.get("memory"):
        yield _memory(prediction)


def _step_time(prediction: Mapping[str, Any]) -> Figure:
    seconds = prediction["step_time_seconds"]
    low, high = prediction["step_time_interval_seconds"]
    scale = seconds_scale(seconds)
    interval = f"{scale.number(low)}\N{EN DASH}{scale.quantity(high)}"
    return Figure(
        key="step_time",
        name="Step time",
        number=scale.number(seconds),
        unit=scale.unit,
        note=f"80\N{NO-BREAK SPACE}% interval {interval}",
    )


def _throughput(prediction: Mapping[str, Any]) -> Figure:
    tokens = prediction.get("tokens_per_second")
    samples = f"{rounded_count(prediction['samples_per_second'])}\N{NO-BREAK SPACE}samples/s"
    if tokens is None:
        number = rounded_count(prediction["samples_per_second"])
        return Figure(key="throughput", name="Throughput", number=number, unit="samples/s", note="")
    each = rounded_count(prediction["tokens_per_second_per_device"])
    return Figure(
        key="throughput",
        name="Throughput",
        number=rounded_count(tokens),
        unit="tokens/s",
        note=f"{each} per device, {samples}",
    )


def _memory(prediction: Mapping[str, Any]) -> Figure:
    worst = worst_stage(prediction["memory"])
    scale = bytes_scale(worst["peak_bytes"])
    capacity = scale.quantity(worst["capacity_bytes"])
    share = percent(worst["peak_bytes"] / worst["capacity_bytes"], decimals=0)
    return Figure(
        key="memory",
        name="Peak memory",
        number=scale.number(worst["peak_bytes"]),
        unit=scale.unit,
        note=f"{share} of {capacity}, stage {worst['stage']}",
    )
