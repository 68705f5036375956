"""Memory of every stage against the capacity of its devices, with the safe line and error bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from api.pages.quantities import Scale, bytes_scale, percent
from api.pages.stacked_bar import WHOLE, Segment, stack

NAMES: Final[Mapping[str, str]] = {
    "parameters": "Parameters",
    "gradients": "Gradients",
    "optimizer": "Optimizer states",
    "activations": "Activations",
    "logits": "Logits",
    "buffers": "Buffers",
    "framework": "Framework",
}
"""By the key of ``breakdown_bytes``."""
MARGIN: Final = 1.02
"""The axis over the largest value on it, so that the last line has room."""
DENSE_ROWS: Final = 16
"""More stages than this are drawn as thin rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRow:
    """One stage: segments and lines in percent of the axis, numbers in the chart's unit."""

    index: int
    stage: int
    node_group: str
    segments: tuple[Segment, ...]
    interval: tuple[float, float]
    safe: float
    capacity: float
    peak: str
    share: str
    verdict: str
    tone: str
    parts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryChart:
    """All stages on one axis; ``keys`` are the parts that any of them has."""

    rows: tuple[MemoryRow, ...]
    keys: tuple[str, ...]
    unit: str
    capacity: str
    safe_share: str
    names_groups: bool

    @property
    def is_dense(self) -> bool:
        """Whether there are so many rows that they are drawn thin."""
        return len(self.rows) > DENSE_ROWS

    def name(self, key: str) -> str:
        """Return the name of a part."""
        return NAMES.get(key, key.replace("_", " ").capitalize())


def memory_chart(memory: Sequence[Mapping[str, Any]], *, memory_fraction: float) -> MemoryChart:
    """Return the chart of a prediction's ``memory``; the safe line is that share of the capacity."""
    largest = MARGIN * max(
        max(stage["capacity_bytes"], stage["peak_bytes"], stage["interval_bytes"][1]) for stage in memory
    )
    scale = bytes_scale(largest)
    keys = _keys(memory)
    capacities = sorted({stage["capacity_bytes"] for stage in memory})
    return MemoryChart(
        rows=tuple(
            _row(stage, index=index, keys=keys, largest=largest, scale=scale, memory_fraction=memory_fraction)
            for index, stage in enumerate(memory)
        ),
        keys=keys,
        unit=scale.unit,
        capacity=" and ".join(str(scale.quantity(capacity)) for capacity in capacities),
        safe_share=percent(memory_fraction, decimals=0),
        names_groups=len({stage["node_group"] for stage in memory}) > 1,
    )


def worst_stage(memory: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the stage that fills the largest share of its devices."""
    return max(memory, key=lambda stage: stage["peak_bytes"] / stage["capacity_bytes"])


def _keys(memory: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    keys = dict.fromkeys(key for stage in memory for key in stage["breakdown_bytes"])
    return tuple(key for key in keys if any(stage["breakdown_bytes"].get(key, 0) > 0 for stage in memory))


def _row(  # one row is many numbers on one axis
    stage: Mapping[str, Any],
    *,
    index: int,
    keys: Sequence[str],
    largest: float,
    scale: Scale,
    memory_fraction: float,
) -> MemoryRow:
    capacity = stage["capacity_bytes"]
    low, high = stage["interval_bytes"]
    breakdown = {key: stage["breakdown_bytes"].get(key, 0.0) for key in keys}
    verdict, tone = _verdict(stage, scale=scale, memory_fraction=memory_fraction)
    return MemoryRow(
        index=index,
        stage=stage["stage"],
        node_group=stage["node_group"],
        segments=stack(breakdown, full=largest),
        interval=(WHOLE * low / largest, WHOLE * high / largest),
        safe=WHOLE * capacity * memory_fraction / largest,
        capacity=WHOLE * capacity / largest,
        peak=scale.number(stage["peak_bytes"]),
        share=percent(stage["peak_bytes"] / capacity, decimals=0),
        verdict=verdict,
        tone=tone,
        parts=tuple(scale.parts(list(breakdown.values()))),
    )


def _verdict(stage: Mapping[str, Any], *, scale: Scale, memory_fraction: float) -> tuple[str, str]:
    excess = stage["peak_bytes"] - stage["capacity_bytes"]
    if not stage["fits"] or excess > 0:
        return f"over by {scale.quantity(max(excess, 0.0))}", "bad"
    if stage["peak_bytes"] > memory_fraction * stage["capacity_bytes"]:
        return "above the safe line", "warn"
    return "fits", "good"
