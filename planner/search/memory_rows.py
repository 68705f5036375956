"""The memory of one stage as rows over its chunks: one for every moment at which it can peak."""

from dataclasses import dataclass

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.cost.schedules import memory_moments
from planner.search.orders import compact_shape
from planner.search.rows import Integers, fixed_parts


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRows:
    """Moments of a stage: ``kept[moment, turn]`` micro-batches, and whose backward pass runs (else -1).

    ``fixed_bytes`` is what a moment holds besides layers and working memory; the layers' share is
    static bytes each and ``kept`` times the saved bytes of their chunk.
    """

    kept: Integers
    working_turn: tuple[int, ...]
    fixed_bytes: Integers
    fixed_working: tuple[int, ...]

    def peak_bytes(self, saved: Integers, working: Integers, static_bytes: int) -> int:
        """Return the stage's peak: layers' ``saved`` and ``working`` bytes by turn, static bytes in all."""
        busy = np.append(np.maximum(working, self.fixed_working), 0)[list(self.working_turn)]
        return int((self.fixed_bytes + self.kept @ saved + busy).max()) + static_bytes


def memory_rows(problem: PipelineProblem, stage: int) -> MemoryRows:
    """Return the moments of a stage."""
    own = fixed_parts(problem)[stage :: problem.shape.num_stages]
    moments = memory_moments(compact_shape(problem.shape), stage)
    kept = np.array([moment.saved for moment in moments], dtype=np.int64)
    fixed = problem.base_bytes + sum(part.static_bytes for part in own)
    saved = np.array([part.saved_bytes for part in own], dtype=np.int64)
    return MemoryRows(
        kept=kept,
        working_turn=tuple(moment.turn if moment.backward else -1 for moment in moments),
        fixed_bytes=fixed + kept @ saved,
        fixed_working=tuple(part.working_bytes for part in own),
    )
