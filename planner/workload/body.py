"""A chain as pipeline stages see it: what stands at its ends, and the counted layers in between.

Stages split between counted layers: the encoder and decoder layers of a transformer, else all layers but
the embeddings in front and the norms and heads behind. What precedes the first counted layer (a vision
tower too) stays on the first stage, what follows the last one on the last stage, and what stands between
two of them goes with the second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from planner.workload.layers import (
    DECODER,
    EMBEDDING,
    ENCODER,
    HEAD,
    NORM,
    Layer,
    LayerRun,
    Workload,
)

REPEATED_KINDS: Final = frozenset({ENCODER, DECODER})
"""What is counted wherever a chain has it."""
END_KINDS: Final = frozenset({EMBEDDING, NORM, HEAD})
"""What is not counted where a chain has other layers."""

Unit = tuple[Layer, ...]
"""A counted layer, after those that go with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """The ends of a chain and its counted layers; ``sequence`` names the class of each of them in order."""

    first: tuple[Layer, ...]
    classes: tuple[Unit, ...]
    sequence: tuple[int, ...]
    last: tuple[Layer, ...]

    @property
    def num_layers(self) -> int:
        """Counted layers."""
        return len(self.sequence)

    @property
    def units(self) -> Iterator[Unit]:
        """The counted layers in order, each with what goes with it."""
        return (self.classes[number] for number in self.sequence)


def body_of(workload: Workload) -> Body:
    """Return the body of a chain; a chain has at least one layer, and so has its body."""
    counted = _counted_kinds(workload.runs)
    first: list[Layer] = []
    before: list[Layer] = []
    numbers: dict[Unit, int] = {}
    sequence: list[int] = []
    for run in workload.runs:
        if run.layer.kind not in counted:
            before += [run.layer] * run.count
            continue
        if not sequence:
            first, before = before, []
        for unit, count in (((*before, run.layer), 1), ((run.layer,), run.count - 1)):
            if count:
                sequence += [numbers.setdefault(unit, len(numbers))] * count
        before = []
    return Body(first=tuple(first), classes=tuple(numbers), sequence=tuple(sequence), last=tuple(before))


def _counted_kinds(runs: Sequence[LayerRun]) -> frozenset[str]:
    kinds = frozenset(run.layer.kind for run in runs)
    return kinds & REPEATED_KINDS or kinds - END_KINDS or kinds
