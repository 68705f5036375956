"""Where a run splits into layers: the modules that follow one another, as far down as they are a chain.

The module itself, or the one that it only wraps, is always taken apart into the modules that it calls.
One of those is taken apart again when it is a sequence, or holds several modules that have parts
themselves, and one trained tensor alone passes from each part to the next. What lies side by side inside
a module so stays in one layer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch

from profiler.tracing.recording import Call, Frame, Recording

MATRIX_DIMS: Final = 2
"""Weights of fewer dimensions are scales and biases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Calls of operators that make one layer, from ``start`` to ``end``, and what to call it."""

    role: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A module that is not taken apart, or calls between modules (``module`` is None)."""

    module: torch.nn.Module | None
    start: int
    end: int

    @property
    def is_block(self) -> bool:
        """Whether it has parts."""
        return self.module is not None and any(True for _ in self.module.children())


def blocks_of(recording: Recording) -> list[Block]:
    """Return the blocks of a run, in order; together they are all of its calls."""
    root = recording.root
    pieces = list(_pieces(root, recording.calls)) if root.children else [_whole(root)]
    return _without_empty(list(_Grouping(recording).blocks(pieces)), recording)


def _pieces(frame: Frame, calls: Sequence[Call], *, is_root: bool = True) -> Iterator[Piece]:
    """Yield what a module calls, what is taken apart in its parts, and the calls between them."""
    place = frame.start
    for child in frame.children:
        if place < child.start:
            yield Piece(module=None, start=place, end=child.start)
        is_wrapped = len(frame.children) == 1 and bool(child.children)
        if (is_root and is_wrapped) or _is_chain(child, calls):
            yield from _pieces(child, calls, is_root=is_root and is_wrapped)
        else:
            yield _whole(child)
        place = child.end
    if place < frame.end:
        yield Piece(module=None, start=place, end=frame.end)


def _whole(frame: Frame) -> Piece:
    return Piece(module=frame.module, start=frame.start, end=frame.end)


def _is_chain(frame: Frame, calls: Sequence[Call]) -> bool:
    """Tell whether a module is taken apart: see the top of this file."""
    parts = frame.children[0].children if len(frame.children) == 1 else frame.children
    holds_blocks = sum(bool(part.children) for part in parts) > 1
    is_sequence = isinstance(frame.module, torch.nn.Sequential) and len(frame.children) > 1
    return (holds_blocks or is_sequence) and all(
        _num_passed(calls, start=frame.start, cut=after.start) <= 1 for _, after in pairwise(parts)
    )


def _num_passed(calls: Sequence[Call], *, start: int, cut: int) -> int:
    """Return how many trained activations met between two calls are met again after the second.

    Masks and positions, which nothing trains, may be met by all.
    """
    met = {view.storage.number for call in calls[start:cut] for view in (*call.reads, *call.writes)}
    trained = {view.storage.number for call in calls[:cut] if call.is_trained for view in call.writes}
    again = {
        view.storage.number
        for call in calls[cut:]
        for view in call.reads
        if not call.is_view and not view.storage.is_weight
    }
    return len(met & trained & again)


class _Grouping:
    """Makes blocks of pieces: a module with parts is one, modules without are put together.

    A layer of plain modules begins with each one that has a matrix of weights, together with those
    before it that have none when they follow a block. Calls between modules go with what is before
    them; after the last of some equal blocks those that do not follow the others go on to what is next.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._done: list[Block] = []
        self._open: list[Piece] = []
        self._after: dict[type, list[str]] = {}

    def blocks(self, pieces: Sequence[Piece]) -> list[Block]:
        """Return the blocks of all pieces."""
        for place, piece in enumerate(pieces):
            following = pieces[place + 1] if place + 1 < len(pieces) else None
            if piece.is_block:
                self._add_block(piece)
            elif piece.module is None and place and pieces[place - 1].is_block:
                self._add_after_block(piece, pieces[place - 1], following)
            else:
                self._add_plain(piece)
        if self._open and not self._open_has_weights():
            self._extend_last(self._open[-1].end)
        else:
            self._close()
        return self._done

    def _add_block(self, piece: Piece) -> None:
        start = piece.start
        if self._open and not self._open_has_weights():
            start, self._open = self._open[0].start, []
        self._close()
        self._done.append(Block(role=type(piece.module).__name__, start=start, end=piece.end))

    def _add_after_block(self, piece: Piece, block: Piece, following: Piece | None) -> None:
        names = self._names(piece)
        kind = type(block.module)
        shared = len(names)
        if following is None or not following.is_block:
            usual = self._after.get(kind, [])
            shared = len(usual) if names[: len(usual)] == usual else 0
        else:
            self._after.setdefault(kind, names)
        if shared:
            self._extend_last(piece.start + shared)
        if shared < len(names):
            self._open.append(Piece(module=None, start=piece.start + shared, end=piece.end))

    def _add_plain(self, piece: Piece) -> None:
        if self._open_has_weights() and self._has_weights(piece):
            self._close()
        self._open.append(piece)

    def _extend_last(self, end: int) -> None:
        if self._done:
            last = self._done.pop()
            self._done.append(Block(role=last.role, start=last.start, end=end))
            self._open = []
        else:
            self._close()

    def _close(self) -> None:
        if self._open:
            self._done.append(Block(role=self._role(), start=self._open[0].start, end=self._open[-1].end))
            self._open = []

    def _role(self) -> str:
        """Return what a layer of plain modules is called: its first one with weights, else its first."""
        modules = [piece.module for piece in self._open if piece.module is not None]
        weighty = [
            piece.module for piece in self._open if piece.module is not None and self._has_weights(piece)
        ]
        named = (*weighty, *modules, self._recording.module)[0]
        return type(named).__name__

    def _open_has_weights(self) -> bool:
        return any(map(self._has_weights, self._open))

    def _has_weights(self, piece: Piece) -> bool:
        """Tell whether some calls read a matrix of weights."""
        return any(
            view.storage.is_weight and len(view.shape) >= MATRIX_DIMS
            for call in self._recording.calls[piece.start : piece.end]
            for view in call.reads
        )

    def _names(self, piece: Piece) -> list[str]:
        return [call.operator for call in self._recording.calls[piece.start : piece.end]]


def _without_empty(blocks: Sequence[Block], recording: Recording) -> list[Block]:
    """Join blocks that only look at data with the one after them, or at the end before them."""
    kept: list[Block] = []
    start = 0
    for block in blocks:
        if any(call.moved.elements or call.moved.bytes for call in recording.calls[start : block.end]):
            kept.append(Block(role=block.role, start=start, end=block.end))
            start = block.end
    if kept and kept[-1].end < len(recording.calls):
        kept[-1] = Block(role=kept[-1].role, start=kept[-1].start, end=len(recording.calls))
    return kept
