"""Which parts of a step are drawn: all of a short one, the beginning and the end of a long one."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from planner.plan import TimelineEvent
from planner.units import Seconds

WHOLE_PASSES: Final = 128
"""A step of at most so many passes per stage is drawn whole."""
END_PASSES: Final = 44
"""Passes per stage in each of the two ends of a longer step."""
MARGIN: Final = 1.25
"""How much longer an end is than the filling, or the draining, of the pipeline."""
LARGEST_SHARE: Final = 0.45
"""Two ends that would cover more of the step than this each are cut, so that a gap remains."""
MAX_EVENTS: Final = 24_000
"""Events that a drawing holds: about 20 bytes each in it."""
GAP_WIDTH: Final = 4.0
"""Width of what stands for the middle that is left out, in percent."""
SHRINK: Final = 0.8
TICK_WIDTH: Final = 9.0
"""The closest that two labels of the axis may stand, in percent of the drawing."""

FORWARD: Final = "forward"
BACKWARD: Final = "backward"
PASSES: Final = {FORWARD: "f", BACKWARD: "b", "input_gradient": "b", "weight_gradient": "w"}
"""The passes of a step and the letter of each one's colours; both kinds that hand gradients on share one."""
GOES_BACK: Final = frozenset({BACKWARD, "input_gradient"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A part of the step, and where it stands on the drawing, in percent of its width."""

    start_seconds: Seconds
    end_seconds: Seconds
    left: float
    right: float

    def x(self, moment: Seconds) -> float:
        """Return where a moment stands, in percent; one outside the span stands at its edge."""
        share = (moment - self.start_seconds) / (self.end_seconds - self.start_seconds)
        return self.left + (self.right - self.left) * min(max(share, 0.0), 1.0)

    def shows(self, event: TimelineEvent) -> bool:
        """Whether any of an event lies inside."""
        return event.start_seconds < self.end_seconds and event.end_seconds > self.start_seconds

    def ticks(self) -> Iterator[Seconds]:
        """Yield round moments of the span, a few."""
        step = _round_step((self.end_seconds - self.start_seconds) * TICK_WIDTH / (self.right - self.left))
        first = math.ceil(self.start_seconds / step - 1e-9)
        last = math.floor(self.end_seconds / step + 1e-9)
        yield from (index * step for index in range(first, last + 1))


def spans(events: Sequence[TimelineEvent]) -> tuple[Span, ...]:
    """Return the parts to draw: one, or two of equal length with a gap between them."""
    end = max(event.end_seconds for event in events)
    passes = _passes_by_stage(events)
    if len(events) <= MAX_EVENTS and max(map(len, passes)) <= WHOLE_PASSES:
        return (Span(start_seconds=0.0, end_seconds=end, left=0.0, right=100.0),)
    length = min(max(_filling(passes), _draining(passes, end)), LARGEST_SHARE * end)
    while _num_shown(events, length=length, end=end) > MAX_EVENTS:
        length *= SHRINK
    middle = 50.0
    return (
        Span(start_seconds=0.0, end_seconds=length, left=0.0, right=middle - GAP_WIDTH / 2),
        Span(start_seconds=end - length, end_seconds=end, left=middle + GAP_WIDTH / 2, right=100.0),
    )


def _passes_by_stage(events: Sequence[TimelineEvent]) -> list[list[TimelineEvent]]:
    """Return the forward and backward passes of every stage, in time."""
    by_stage: dict[int, list[TimelineEvent]] = defaultdict(list)
    for event in events:
        if event.operation in PASSES:
            by_stage[event.stage].append(event)
    ordered = [sorted(by_stage[stage], key=lambda event: event.start_seconds) for stage in sorted(by_stage)]
    return ordered or [[]]


def _filling(passes: Sequence[Sequence[TimelineEvent]]) -> Seconds:
    """Return how long the beginning is: until the first stage has work in both directions."""
    enough = max((own[:END_PASSES][-1].end_seconds for own in passes if own), default=0.0)
    first_backward = next((event.end_seconds for event in passes[0] if event.operation in GOES_BACK), 0.0)
    return max(enough, MARGIN * first_backward)


def _draining(passes: Sequence[Sequence[TimelineEvent]], end: Seconds) -> Seconds:
    """Return how long the end is: since the first stage had work in both directions."""
    enough = end - min((own[-END_PASSES:][0].start_seconds for own in passes if own), default=end)
    last_forward = max(
        (event.start_seconds for event in passes[0] if event.operation == FORWARD), default=end
    )
    return max(enough, MARGIN * (end - last_forward))


def _num_shown(events: Sequence[TimelineEvent], *, length: Seconds, end: Seconds) -> int:
    return sum(event.start_seconds < length or event.end_seconds > end - length for event in events)


def _round_step(at_least: Seconds) -> Seconds:
    """Return the smallest of 1, 2 or 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(at_least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= at_least * (1 - 1e-9))
