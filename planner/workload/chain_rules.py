"""Which layers fit one another in a chain."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from planner.errors import InvalidRequest
from planner.workload.block import BlockLayer
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer
from planner.workload.layers import EMBEDDING, HEAD, PROJECTOR, VISION, LayerRun
from planner.workload.projector import ProjectorLayer
from planner.workload.transformer import DecoderLayer

Complaint = tuple[str, str]
"""Where under the list of layers, and what is wrong."""


def check_chain(runs: Sequence[LayerRun], *, pointer: str) -> None:
    """Refuse layers that do not make one model, with InvalidRequest under ``pointer``."""
    for rule in RULES:
        for where, message in rule(runs):
            raise InvalidRequest(message, pointer=f"{pointer}{where}")


def _has_a_repeated_layer(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    if not any(isinstance(run.layer, DecoderLayer | BlockLayer) for run in runs):
        yield "", "the chain needs a layer of kind decoder or block"


def _ends_stand_at_the_ends(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    """Vision may stand before the embedding, a decoder's own embedding in the middle."""
    last = len(runs) - 1
    first = next((place for place, run in enumerate(runs) if run.layer.kind not in BEFORE_TEXT), 0)
    for index, run in enumerate(runs):
        layer = run.layer
        if layer.kind not in {EMBEDDING, HEAD}:
            continue
        place = last if layer.kind == HEAD else first
        is_second = isinstance(layer, EmbeddingLayer) and layer.shared
        if index != place and not is_second:
            yield f"/{index}/kind", f"the {layer.kind} must be layer {place} of the list"
        if run.count != 1:
            yield f"/{index}/count", f"count ({run.count}) must be 1 for the {layer.kind}"


BEFORE_TEXT: Final = frozenset({VISION, PROJECTOR, "norm"})
"""Kinds that may come before the embedding: what makes tokens of images."""


def _widths_agree(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    """Every layer reads as many channels as the one before it writes, a merger those of a few tokens."""
    written: int | None = None
    for index, run in enumerate(runs):
        layer = run.layer
        if isinstance(layer, ProjectorLayer):
            if written is not None and layer.widths[0] % written:
                message = f"widths ({layer.widths[0]}, ...) must begin with a multiple of {written}"
                yield f"/{index}/widths", message
            written = layer.widths[-1]
            continue
        width = int(getattr(layer, "hidden"))  # noqa: B009 - every other layer has it
        if written is not None and width != written:
            yield f"/{index}/hidden", f"hidden ({width}) must be that of the layer before ({written})"
        written = width


def _tied_head_has_its_embedding(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    last, index = runs[-1].layer, len(runs) - 1
    if not isinstance(last, HeadLayer) or not last.tied:
        return
    embedding = next((run.layer for run in runs if isinstance(run.layer, EmbeddingLayer)), None)
    if embedding is None:
        yield f"/{index}/tied", "a tied head needs an embedding to share its weight with"
    elif embedding.vocabulary != last.vocabulary:
        message = (
            f"vocabulary ({last.vocabulary}) of a tied head must be the embedding's ({embedding.vocabulary})"
        )
        yield f"/{index}/vocabulary", message


RULES: Final[tuple[Callable[[Sequence[LayerRun]], Iterable[Complaint]], ...]] = (
    _has_a_repeated_layer,
    _ends_stand_at_the_ends,
    _widths_agree,
    _tied_head_has_its_embedding,
)
