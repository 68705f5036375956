"""The layers of a reference model in the full form of a plan: each beside the same layer of the model."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from planner.errors import InvalidRequest
from planner.strategy import Chunk, LayerRange, Recompute, TrainingPlan

REFERENCE: Final = "reference"
"""What the layers of a frozen second model are ``of``."""


def with_reference_layers(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan with the reference's layers listed after the model's own; nothing of them runs again."""
    return _rewritten(plan, lambda chunk: replace(chunk, layers=tuple(_with_twins(chunk.layers))))


def without_reference_layers(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan without the reference's layers, which may be left out.

    Raises InvalidRequest where they are listed and a chunk does not hold those of the model's own layers.
    """
    lists_them = any(
        layers.of == REFERENCE for stage in plan.stages for chunk in stage.chunks for layers in chunk.layers
    )
    if lists_them:
        for number, stage in enumerate(plan.stages):
            for place, chunk in enumerate(stage.chunks):
                _check_twins(chunk, pointer=f"/plan/stages/{number}/chunks/{place}/layers")
    return _rewritten(
        plan,
        lambda chunk: replace(
            chunk, layers=tuple(layers for layers in chunk.layers if layers.of != REFERENCE)
        ),
    )


def _rewritten(plan: TrainingPlan, changed: Callable[[Chunk], Chunk]) -> TrainingPlan:
    return replace(
        plan,
        stages=tuple(replace(stage, chunks=tuple(map(changed, stage.chunks))) for stage in plan.stages),
    )


def _with_twins(own: tuple[LayerRange, ...]) -> Iterator[LayerRange]:
    for layers in own:
        yield layers
        yield replace(layers, of=REFERENCE, recompute=Recompute())


def _check_twins(chunk: Chunk, *, pointer: str) -> None:
    if _places(chunk, of=REFERENCE) != _places(chunk, of=None):
        raise InvalidRequest(
            "a chunk runs those layers of the reference that it runs of the model, each beside its own",
            pointer=pointer,
        )


def _places(chunk: Chunk, *, of: str | None) -> Counter[tuple[str, int]]:
    return Counter(
        (layers.kind, number)
        for layers in chunk.layers
        if layers.of == of
        for number in range(layers.first, layers.first + layers.count)
    )
