"""Where the time of a step goes: exposed seconds by cause, as a bar and a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.pages.quantities import PERCENT_SCALE, Quantity, seconds_scale
from api.pages.stacked_bar import Segment, stack

NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "compute": ("Compute", "forward and backward kernels"),
    "recompute": ("Recomputation", "activations computed again in backward"),
    "tensor_parallel": ("Tensor parallel", "collectives inside the layers"),
    "context_parallel": ("Context parallel", "exchange of keys and values"),
    "expert_parallel": ("Expert parallel", "tokens sent to their experts and back"),
    "pipeline": ("Pipeline", "activations sent between stages"),
    "data_parallel": ("Data parallel", "gradient reduction, parameter gathers"),
    "offload": ("Offload", "copies to and from the host"),
    "bubble": ("Bubble", "stages that wait for their neighbours"),
    "optimizer": ("Optimizer", "the update of the parameters"),
    "overhead": ("Overhead", "gradient norm, loss and the step's fixed costs"),
}
"""By the key of ``breakdown_seconds``: the name, and what it counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimePart:
    """One cause of time: a row of the table."""

    key: str
    name: str
    hint: str
    number: str
    share: str
    is_nothing: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeChart:
    """The bar and the table; ``total`` is what the parts add up to."""

    segments: tuple[Segment, ...]
    parts: tuple[TimePart, ...]
    unit: str
    total: Quantity

    def name(self, key: str) -> str:
        """Return the name of a part."""
        return part_name(key)[0]


def part_name(key: str) -> tuple[str, str]:
    """Return a part's name and what it counts; a key that is new here is its own name."""
    return NAMES.get(key, (key.replace("_", " ").capitalize(), ""))


def time_chart(prediction: Mapping[str, Any]) -> TimeChart:
    """Return the chart of a prediction's ``breakdown_seconds``."""
    breakdown: Mapping[str, float] = prediction["breakdown_seconds"]
    total = sum(breakdown.values())
    scale = seconds_scale(total)
    numbers = scale.parts(list(breakdown.values()))
    shares = PERCENT_SCALE.parts([value / total if total else 0.0 for value in breakdown.values()])
    rows = zip(breakdown.items(), numbers, shares, strict=True)
    return TimeChart(
        segments=stack(breakdown, full=total),
        parts=tuple(_part(key, value, number, share) for (key, value), number, share in rows),
        unit=scale.unit,
        total=scale.quantity(total),
    )


def _part(key: str, value: float, number: str, share: str) -> TimePart:
    name, hint = part_name(key)
    return TimePart(key=key, name=name, hint=hint, number=number, share=share, is_nothing=value == 0)
