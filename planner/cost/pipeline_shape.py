"""What fixes the order of passes in a pipeline, and where its chunks sit.

Chunks are numbered in forward order, 0 to p v - 1. Looped schedules put chunk c on stage c mod p; folded
ones (V shapes) go down the stages and back up, so that stage i holds chunks i and 2 p - 1 - i.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from planner.strategy import ScheduleName


class PassKind(IntEnum):
    """What a pass computes. ``INPUT`` and ``WEIGHT`` gradients together are one ``BACKWARD`` pass."""

    FORWARD = 0
    BACKWARD = 1
    INPUT = 2
    WEIGHT = 3


FORWARD, BACKWARD, INPUT, WEIGHT = map(int, PassKind)
"""The same as plain numbers: a step may have a hundred thousand passes, and enums cost time."""


class Pass(NamedTuple):
    """One pass of one micro-batch through one chunk.

    A tuple, because a step may have a hundred thousand of them.
    """

    kind: int
    chunk: int
    micro_batch: int

    @property
    def backward(self) -> bool:
        """Whether it hands a gradient to the chunk before its own."""
        return self.kind in {BACKWARD, INPUT}


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineShape:
    """What fixes the orders: schedule, p stages, v chunks per stage, m micro-batches.

    ``group_size`` micro-batches go through one chunk before the next one's turn (interleaved only;
    default p).
    """

    schedule: ScheduleName
    num_stages: int
    virtual_stages: int
    num_micro_batches: int
    group_size: int | None = None

    def __post_init__(self) -> None:
        """Refuse counts below one and chunks without a schedule that can run them."""
        if min(self.num_stages, self.virtual_stages, self.num_micro_batches) < 1:
            raise ValueError(f"stages, virtual stages and micro-batches must be positive: {self}")
        if not self.schedule.runs(self.virtual_stages):
            raise ValueError(f"{self.schedule} does not run {self.virtual_stages} virtual stages")

    @property
    def num_chunks(self) -> int:
        """Chunks of all stages together."""
        return self.num_stages * self.virtual_stages

    @property
    def num_lanes(self) -> int:
        """Kinds of passes of all chunks: see `lane`."""
        return (4 if self.schedule.splits_backward else 2) * self.num_chunks

    def lane(self, kind: int, chunk: int) -> int:
        """Return the number of a chunk's passes of one kind.

        Forward and backward passes of chunk c are lanes 2 c and 2 c + 1; gradients of inputs and of weights
        as passes of their own follow in the same way after those of all chunks.
        """
        return 2 * chunk + kind if kind < INPUT else 2 * (self.num_chunks + chunk) + kind - INPUT

    def chunk_of(self, lane: int) -> int:
        """Return the chunk of a lane."""
        return lane // 2 % self.num_chunks

    def stage_of(self, chunk: int) -> int:
        """Return the stage that holds a chunk."""
        if self.schedule.folds and chunk >= self.num_stages:
            return 2 * self.num_stages - 1 - chunk
        return chunk % self.num_stages

    def chunks_of(self, stage: int) -> range:
        """Return the chunks of a stage, the first one first."""
        if self.schedule.folds:
            return range(stage, 2 * self.num_stages - stage, 2 * (self.num_stages - stage) - 1)
        return range(stage, self.num_chunks, self.num_stages)

    def own(self, stage: int) -> slice:
        """Return the chunks of a stage as a slice of all."""
        chunks = self.chunks_of(stage)
        return slice(chunks.start, chunks.stop, chunks.step)

    def turn_of(self, chunk: int) -> int:
        """Return the how-manieth of its stage's chunks a chunk is, from 0."""
        return chunk // self.num_stages
