"""The events of a replayed step as rectangles: one row per stage, one lane for passes, one for the rest."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from api.pages.timeline_spans import PASSES, Span
from planner.plan import TimelineEvent

UNITS_PER_PERCENT: Final = 200
"""Horizontal units of the drawing: 20,000 over its width, about a fifteenth of a pixel on a laptop."""
WIDTH_PIXELS: Final = 1060
"""The width that the drawing has on a laptop, by which a number fits into a block or not."""
DIGIT_PIXELS: Final = 5.6
NUMBER_HEIGHT: Final = 11
"""The lowest block that has room for a number, in pixels."""
ZOOMS: Final = (1, 2, 4, 8)
MAX_NUMBERS: Final = 4000
SHADES: Final = 6
"""Shades that tell the chunks of a stage apart; more chunks use them again."""
ROWS_HEIGHT: Final = 560
MIN_ROW: Final = 5
MAX_ROW: Final = 24
ROW_GAP: Final = 2
SIDE_LANE: Final = 4
SIDE_LANE_FROM: Final = 14
"""Rows lower than this have no room for a lane of their own for what runs beside the passes."""
KNOWN_OPERATIONS: Final = ("optimizer", "gather", "reduce")
IN_THE_PASSES_LANE: Final = frozenset({*PASSES, "optimizer"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One event on the drawing: units across, pixels down."""

    event: TimelineEvent
    css: str
    x: int
    width: int
    y: int
    height: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """The micro-batch of a block, which has room from a zoom on; x in percent, y in pixels."""

    text: str
    x: float
    y: float
    css: str
    zoom: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """How high a row is and which lanes it has, in pixels."""

    num_stages: int
    height: int
    side_lane: int

    @property
    def pitch(self) -> int:
        """From one row to the next."""
        return self.height + ROW_GAP

    @property
    def total(self) -> int:
        """All rows together."""
        return self.num_stages * self.pitch

    def lane(self, event: TimelineEvent) -> tuple[int, int]:
        """Return top and height of the lane that an event is drawn in."""
        top = event.stage * self.pitch
        if not self.side_lane:
            return top, self.height
        main = self.height - self.side_lane - 1
        if event.operation in IN_THE_PASSES_LANE:
            return top, main
        return top + main + 1, self.side_lane


def rows_for(events: Sequence[TimelineEvent]) -> Rows:
    """Return rows for the stages that the events are on."""
    num_stages = 1 + max(event.stage for event in events)
    height = min(max(ROWS_HEIGHT // num_stages - ROW_GAP, MIN_ROW), MAX_ROW)
    beside = any(event.operation not in IN_THE_PASSES_LANE for event in events)
    side_lane = SIDE_LANE if beside and height >= SIDE_LANE_FROM else 0
    return Rows(num_stages=num_stages, height=height, side_lane=side_lane)


def blocks(events: Iterable[TimelineEvent], *, spans: Sequence[Span], rows: Rows) -> Iterator[Block]:
    """Yield the events that lie in the spans, cut at their edges; without a side lane, passes alone."""
    for event in events:
        if not rows.side_lane and event.operation not in IN_THE_PASSES_LANE:
            continue
        for span in spans:
            if span.shows(event):
                top, height = rows.lane(event)
                left = round(span.x(event.start_seconds) * UNITS_PER_PERCENT)
                right = round(span.x(event.end_seconds) * UNITS_PER_PERCENT)
                if right > left:
                    css = css_class(event)
                    yield Block(event=event, css=css, x=left, width=right - left, y=top, height=height)


def css_class(event: TimelineEvent) -> str:
    """Return the class by which an event is coloured: direction and chunk, or what else it is."""
    if event.operation in PASSES:
        return f"{PASSES[event.operation]}{event.virtual_stage % SHADES}"
    return event.operation if event.operation in KNOWN_OPERATIONS else "other"


def paths(drawn: Iterable[Block]) -> dict[str, str]:
    """Return the blocks of each class as the data of one SVG path, with a hairline between neighbours."""
    shapes: dict[str, list[str]] = defaultdict(list)
    hairline = UNITS_PER_PERCENT // 25
    for block in drawn:
        width = block.width - hairline if block.width > 4 * hairline else block.width
        shapes[block.css].append(f"M{block.x} {block.y}h{width}v{block.height}h-{width}z")
    return {css: "".join(shapes[css]) for css in sorted(shapes)}


def numbers(drawn: Iterable[Block]) -> tuple[Number, ...]:
    """Return the micro-batches of the blocks that have room for them at some zoom, the widest first."""
    found = [number for block in drawn if (number := _number(block))]
    return tuple(sorted(found, key=lambda number: number.zoom)[:MAX_NUMBERS])


def _number(block: Block) -> Number | None:
    if block.event.operation not in PASSES or block.height < NUMBER_HEIGHT:
        return None
    text = str(block.event.micro_batch)
    pixels = block.width / UNITS_PER_PERCENT / 100 * WIDTH_PIXELS
    needed = len(text) * DIGIT_PIXELS + 2
    zoom = next((zoom for zoom in ZOOMS if pixels * zoom >= needed), None)
    if zoom is None:
        return None
    middle = (block.x + block.width / 2) / UNITS_PER_PERCENT
    baseline = block.y + block.height / 2 + 3.5
    return Number(text=text, x=middle, y=baseline, css=PASSES[block.event.operation], zoom=zoom)
