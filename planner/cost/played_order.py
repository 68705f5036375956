"""A step's passes played one after the other, rounds left out once they repeat exactly.

A round's ends follow from those of the round before, and all later by one constant when those are.
So as soon as a round's ends are those of an earlier one plus a constant, everything in between
repeats: it is left out as often as rounds remain, and what follows is late by that many constants.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.step_order import Segment, StepOrder


@dataclass(frozen=True, kw_only=True, slots=True)
class Splice:
    """Where rounds are left out: before ``start`` come ``copies`` times the ``length`` ends after it."""

    start: int
    length: int
    copies: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedOrder:
    """The ends of an order's passes, one entry per stage's start first, rounds left out.

    ``work_ns`` and ``flight_ns`` are those by lane, ``floor_ns`` those by chunk that it was played
    with; ``starts`` holds the index of each segment's first end. Ends after a splice are as if nothing
    were left out there: in truth all that follows the last one is ``skipped_ns`` later.
    """

    order: StepOrder
    work_ns: Sequence[int]
    flight_ns: Sequence[int]
    floor_ns: Sequence[int]
    ends_ns: Sequence[int]
    starts: Sequence[int]
    splices: Sequence[Splice]
    skipped_ns: int

    def done_ns(self) -> list[int]:
        """Return the true end of each chunk's last backward pass."""
        return [self.ends_ns[index] + self.skipped_ns for index in self.order.last_backward]


def play_order(
    order: StepOrder,
    *,
    starts_ns: Sequence[int],
    work_ns: Sequence[int],
    flight_ns: Sequence[int],
    floor_ns: Sequence[int],
) -> PlayedOrder:
    """Play an order from its stages' starts.

    ``work_ns`` and ``flight_ns`` say per lane how long a pass takes and how long its output flies
    to the next stage, ``floor_ns`` per chunk the earliest end of its first forward pass.
    """
    player = _Player(list(starts_ns), order.num_rounds)
    starts = []
    for segment in order.segments:
        starts.append(len(player.ends))
        player.play(segment, work_ns, flight_ns, floor_ns)
    return PlayedOrder(
        order=order,
        work_ns=work_ns,
        flight_ns=flight_ns,
        floor_ns=floor_ns,
        ends_ns=player.ends,
        starts=starts,
        splices=player.splices,
        skipped_ns=player.skipped_ns,
    )


_Round = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]
"""Per pass: distance to the one before and to the one that feeds it, flight from there, work."""


class _Player:
    def __init__(self, ends: list[int], num_rounds: int) -> None:
        self.ends, self._num_rounds = ends, num_rounds
        self.splices: list[Splice] = []
        self.skipped_ns = 0

    def play(
        self, segment: Segment, work_ns: Sequence[int], flight_ns: Sequence[int], floor_ns: Sequence[int]
    ) -> None:
        if not segment.lane:
            return
        passes = (
            segment.before,
            segment.feeding,
            list(map(flight_ns.__getitem__, segment.source)),
            list(map(work_ns.__getitem__, segment.lane)),
        )
        if segment.is_loop:
            self._loop(passes)
        elif segment.first_uses and any(floor_ns):
            self._play_gathered(segment, passes, floor_ns)
        else:
            _extend(self.ends, *passes)

    def _play_gathered(self, segment: Segment, passes: _Round, floor_ns: Sequence[int]) -> None:
        begun = 0
        for position in segment.first_uses:
            _extend(self.ends, *(part[begun : position + 1] for part in passes))
            self.ends[-1] = max(self.ends[-1], floor_ns[segment.lane[position] // 2])
            begun = position + 1
        _extend(self.ends, *(part[begun:] for part in passes))

    def _loop(self, passes: _Round) -> None:
        start, length, left = len(self.ends), len(passes[0]), self._num_rounds
        # The part before a loop is a round too: number 0, of ends from ``start - length`` on.
        seen = {self._relative(length): 0}
        played = 0
        while left:
            _extend(self.ends, *passes)
            left, played = left - 1, played + 1
            state = self._relative(length)
            same = seen.setdefault(state, played)
            if same < played and left >= played - same:
                left = self._skip(start + same * length, (played - same) * length, left, played - same)
                seen.clear()

    def _relative(self, length: int) -> tuple[int, ...]:
        """Return the ends of the last round, from the first of them."""
        ends = self.ends[-length:]
        base = ends[0]
        return tuple([end - base for end in ends])

    def _skip(self, start: int, length: int, left: int, period: int) -> int:
        """Leave out all the periods that fit into the rounds left; return how many rounds then remain."""
        copies, remaining = divmod(left, period)
        self.splices.append(Splice(start=start, length=length, copies=copies))
        self.skipped_ns += copies * (self.ends[-1] - self.ends[-1 - length])
        return remaining


def _extend(
    ends: list[int],
    before: Sequence[int],
    feeding: Sequence[int],
    flight_ns: Sequence[int],
    work_ns: Sequence[int],
) -> None:
    """Append the ends of passes: each starts when the one before it ended and its input has arrived."""
    append = ends.append
    for previous, source, flight, work in zip(before, feeding, flight_ns, work_ns, strict=True):
        start = ends[previous]
        arrival = ends[source] + flight
        append((arrival if arrival > start else start) + work)  # noqa: FURB136 - a call takes longer
