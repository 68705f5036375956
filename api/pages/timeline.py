"""The replay of one step as a drawing: stages down, time across."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from api.pages.quantities import percent, seconds_scale
from api.pages.timeline_blocks import (
    SHADES,
    UNITS_PER_PERCENT,
    Number,
    Rows,
    blocks,
    numbers,
    paths,
    rows_for,
)
from api.pages.timeline_spans import Span, spans
from planner.plan import TimelineEvent

LABEL_HEIGHT: Final = 11
"""Rows lower than this are labelled every few stages only."""
LEGEND: Final = {
    "optimizer": "optimizer",
    "gather": "parameter gather",
    "reduce": "gradient reduction",
    "other": "other",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """A moment on the axis; x in percent."""

    x: float
    text: str
    anchor: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LegendEntry:
    """Classes of blocks and what they mean together."""

    classes: tuple[str, ...]
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineDrawing:
    """Everything that the drawing shows; paths in units across and pixels down."""

    rows: Rows
    spans: tuple[Span, ...]
    paths: dict[str, str]
    numbers: tuple[Number, ...]
    ticks: tuple[Tick, ...]
    labels: tuple[tuple[int, int], ...]
    """Stage and baseline in pixels."""
    legend: tuple[LegendEntry, ...]
    left_out: str
    """What the gap stands for, in words; empty where nothing is left out."""

    @property
    def units(self) -> int:
        """Horizontal units over the whole width."""
        return 100 * UNITS_PER_PERCENT


def timeline_drawing(events: Sequence[TimelineEvent]) -> TimelineDrawing | None:
    """Return the drawing of a replayed step, or None where it has no events."""
    if not events or max(event.end_seconds for event in events) <= 0:
        return None
    parts = spans(events)
    rows = rows_for(events)
    drawn = list(blocks(events, spans=parts, rows=rows))
    shapes = paths(drawn)
    return TimelineDrawing(
        rows=rows,
        spans=parts,
        paths=shapes,
        numbers=numbers(drawn),
        ticks=tuple(_ticks(parts)),
        labels=tuple(_labels(rows)),
        legend=tuple(_legend(list(shapes))),
        left_out=_left_out(parts),
    )


def _ticks(parts: Sequence[Span]) -> Iterator[Tick]:
    scale = seconds_scale(parts[-1].end_seconds)
    for span in parts:
        moments = list(span.ticks())
        step = min((b - a for a, b in pairwise(moments)), default=scale.base)
        decimals = next(n for n in range(10) if round(step / scale.base, n) * scale.base > step * (1 - 1e-6))
        for moment in moments:
            x = span.x(moment)
            number = f"{moment / scale.base:,.{decimals}f}"
            yield Tick(x=x, text=f"{number}\N{NO-BREAK SPACE}{scale.unit}", anchor=_anchor(x))


def _anchor(x: float) -> str:
    edge = 2.0
    if x < edge:
        return "start"
    return "end" if x > 100 - edge else "middle"


def _labels(rows: Rows) -> Iterator[tuple[int, int]]:
    every = -(-LABEL_HEIGHT // rows.pitch)
    for stage in range(0, rows.num_stages, every):
        yield stage, stage * rows.pitch + rows.height // 2 + 4


def _legend(shapes: Sequence[str]) -> Iterator[LegendEntry]:
    splits = any(css.startswith("w") for css in shapes)
    words = {
        "f": "forward",
        "b": "gradients of inputs" if splits else "backward",
        "w": "gradients of weights",
    }
    for letter, what in words.items():
        chunks = [css for css in (f"{letter}{shade}" for shade in range(SHADES)) if css in shapes]
        text = f"{what}, by chunk" if len(chunks) > 1 else what
        if chunks:
            yield LegendEntry(classes=tuple(chunks), text=text)
    for css, text in LEGEND.items():
        if css in shapes:
            yield LegendEntry(classes=(css,), text=text)


def _left_out(parts: Sequence[Span]) -> str:
    if len(parts) == 1:
        return ""
    end = parts[-1].end_seconds
    hidden = parts[1].start_seconds - parts[0].end_seconds
    length = seconds_scale(hidden).quantity(hidden)
    share = percent(hidden / end, decimals=0)
    return f"The middle, {length} of steady passes ({share} of the step), is left out."
