"""Step times that no split of a chain into stages of whole layers undercuts, for many splits at once."""

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from planner.cost.sweep import Floats

LEAST_NS: Final = 1e-6
"""What a layer takes at least, so that one that takes nothing can be divided by."""


def whole_layers_ns(constants: Floats, each: Floats, num_layers: int) -> Floats:
    """Return the shortest times in which stages have room for all layers: [row].

    In row r stage s is done no sooner than ``constants[r, s]`` and ``each[r]`` for each of its layers, in
    nanoseconds. A layer more is done where a stage has just time for it, c + n e. In units of e, such a time
    is J + f for the fractional part f of some stage's constant, and stages hold the sum of
    floor(J + f - c / e) layers then: J for each stage less the whole parts of all constants, less one for
    each stage whose fractional part is greater. A stage that is not even begun counts as holding less than
    nothing; as every stage of a plan is begun, all plans are bounded nevertheless.
    """
    each = np.maximum(each, LEAST_NS)
    scaled = constants / each[:, None]
    whole = np.floor(scaled)
    parts = np.sort(scaled - whole, axis=1)
    stages = parts.shape[1]
    greater = np.arange(stages - 1, -1, -1)
    needed = num_layers + whole.sum(axis=1)
    times = np.ceil((needed[:, None] + greater) / stages) + parts
    return np.asarray(times.min(axis=1) * each)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StageEnds:
    """What stages run in every pass besides counted layers, in nanoseconds of both passes: [row]."""

    first_ns: Floats
    last_ns: Floats
    between_ns: int

    def only(self, rows: NDArray[np.intp]) -> Self:
        """Return some of the rows."""
        return replace(self, first_ns=self.first_ns[rows], last_ns=self.last_ns[rows])

    def constants(
        self, each: Floats, micro_batches: NDArray[np.int64], stages: int, *, waits: bool
    ) -> Floats:
        """Return when stages that hold no layer are done at least: [row, stage].

        One that ``waits`` has passes of micro-batch one before and after it, of the stages before it: the
        first holds at least the embedding, each of the others at least a layer.
        """
        stage = np.arange(stages)
        found = np.zeros((len(each), stages))
        if waits:
            found += stage * self.between_ns + (stage > 0) * self.first_ns[:, None]
            found += np.maximum(stage - 1, 0) * each[:, None]
        found += (micro_batches * self.between_ns)[:, None]
        found[:, 0] += micro_batches * self.first_ns
        found[:, -1] += micro_batches * self.last_ns
        return found
