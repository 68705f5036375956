"""The passes on a longest path through a played order, rounds left out counted as often as they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.cost.played_order import PlayedOrder


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedPasses:
    """The passes from one back to the first: how many of each lane, and what the path adds to them.

    ``flown_ns`` is the flight time between them. The first one starts with its ``stage``. Where it
    waits for its gather instead, it is not counted and its chunk is ``gathered``.
    """

    passed: Sequence[int]
    flown_ns: int
    stage: int
    gathered: int | None


def trace_passes(played: PlayedOrder, chunk: int, *, from_start: bool = False) -> TracedPasses:
    """Trace a longest path back from the last backward pass of a chunk.

    It ends where that pass ends, or, ``from_start``, where it starts: the pass is then left out.
    """
    trace = _Trace(played)
    index = len(played.ends_ns) + played.order.last_backward[chunk]
    if from_start:
        index = trace.earlier(index)
    return trace.back_from(index)


@dataclass(slots=True)
class _Crossing:
    """What was counted when the path came to a certain pass at the end of a copy."""

    copies: int
    passed: list[int]
    flown_ns: int


@dataclass(slots=True)
class _Copies:
    """The copies of a splice that the path has yet to cross, and where it crossed into others."""

    start: int
    length: int
    left: int
    crossings: dict[int, _Crossing] = field(default_factory=dict)


class _Trace:
    def __init__(self, played: PlayedOrder) -> None:
        self._played = played
        self._passed = [0] * len(played.work_ns)
        self._flown_ns = 0
        self._segment = len(played.starts) - 1
        self._ahead = [
            _Copies(start=splice.start, length=splice.length, left=splice.copies) for splice in played.splices
        ]

    def back_from(self, index: int) -> TracedPasses:
        gathered, p = None, self._played.order.num_stages
        while index >= p:
            lane = self._lane(index)
            if self._waits_for_gather(index, lane):
                gathered = lane // 2
                break
            self._passed[lane] += 1
            index = self.earlier(index)
        return TracedPasses(
            passed=self._passed,
            flown_ns=self._flown_ns,
            stage=index if gathered is None else self._played.order.stages[gathered],
            gathered=gathered,
        )

    def _lane(self, index: int) -> int:
        """Return the lane of a pass; it lies in the segment of the one asked before or an earlier one."""
        while index < self._played.starts[self._segment]:
            self._segment -= 1
        return self._played.order.segments[self._segment].lane[self._place(index)]

    def _place(self, index: int) -> int:
        lanes = self._played.order.segments[self._segment].lane
        return (index - self._played.starts[self._segment]) % len(lanes)

    def _waits_for_gather(self, index: int, lane: int) -> bool:
        if self._place(index) not in self._played.order.segments[self._segment].first_uses:
            return False
        floor = self._played.floor_ns[lane // 2]
        return floor > 0 and self._played.ends_ns[index] == floor

    def earlier(self, index: int) -> int:
        """Return the pass that one waited for: the one before it on its stage, or else its source."""
        lane, place, ends = self._lane(index), self._place(index), self._played.ends_ns
        segment = self._played.order.segments[self._segment]
        before = index + segment.before[place]
        if ends[before] == ends[index] - self._played.work_ns[lane]:
            return self._crossed(before)
        self._flown_ns += self._played.flight_ns[segment.source[place]]
        return self._crossed(index + segment.feeding[place])

    def _crossed(self, index: int) -> int:
        """Return where a pass is played whose copy the path came to; skip copies that it passes alike."""
        while self._ahead and index < self._ahead[-1].start:
            copies = self._ahead[-1]
            if not copies.left:
                self._ahead.pop()
                continue
            copies.left -= 1
            index += copies.length
            self._skip(copies, index)
        return index

    def _skip(self, copies: _Copies, index: int) -> None:
        """Count a cycle as often as it fits once the path comes to the same pass in another copy."""
        known = copies.crossings.get(index)
        if known is None:
            copies.crossings[index] = _Crossing(copies.left, list(self._passed), self._flown_ns)
            return
        cycle = known.copies - copies.left
        times, copies.left = divmod(copies.left, cycle)
        self._flown_ns += times * (self._flown_ns - known.flown_ns)
        self._passed = [
            now + times * (now - before) for now, before in zip(self._passed, known.passed, strict=True)
        ]
