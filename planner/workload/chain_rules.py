"""Which layers fit one another in a chain."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from planner.errors import InvalidRequest
from planner.workload.block import BlockLayer
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer
from planner.workload.layers import EMBEDDING, HEAD, NORM, PROJECTOR, VISION, LayerRun
from planner.workload.patches import PatchLayer
from planner.workload.projector import ProjectorLayer
from planner.workload.streams import ImageStream
from planner.workload.traced import TracedLayer
from planner.workload.transformer import DecoderLayer

Complaint = tuple[str, str]
"""Where under the list of layers, and what is wrong."""


def check_chain(runs: Sequence[LayerRun], *, pointer: str) -> None:
    """Refuse layers that do not make one model, with InvalidRequest under ``pointer``."""
    for rule in RULES:
        for where, message in rule(runs):
            raise InvalidRequest(message, pointer=f"{pointer}{where}")


def _has_a_repeated_layer(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    if not any(isinstance(run.layer, DecoderLayer | BlockLayer | TracedLayer) for run in runs):
        yield "", "the chain needs a layer of kind decoder, block or traced"


def _ends_stand_at_the_ends(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    """Vision may stand before the embedding, a decoder's own embedding in the middle, heads together."""
    first = next((place for place, run in enumerate(runs) if run.layer.kind not in BEFORE_TEXT), 0)
    begins_ends = next((place for place, run in enumerate(runs) if run.layer.kind == HEAD), len(runs))
    for index, run in enumerate(runs):
        layer = run.layer
        is_first = isinstance(layer, EmbeddingLayer | PatchLayer) and layer.kind == EMBEDDING
        is_second = isinstance(layer, EmbeddingLayer) and layer.shared
        if is_first and not is_second and index != first:
            yield f"/{index}/kind", f"the {layer.kind} must be layer {first} of the list"
        if index > begins_ends and isinstance(layer, EmbeddingLayer | DecoderLayer | BlockLayer):
            yield f"/{begins_ends}/kind", f"the head must come after the {layer.kind}"
        if layer.kind in {EMBEDDING, HEAD} and run.count != 1:
            yield f"/{index}/count", f"count ({run.count}) must be 1 for the {layer.kind}"


BEFORE_TEXT: Final = frozenset({VISION, PROJECTOR, NORM})
"""Kinds that may come before the embedding: what makes tokens of images."""


def _widths_agree(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    """Every layer reads as many channels as the one before writes; images and traced layers are free."""
    written: int | None = None
    for index, run in enumerate(runs):
        layer = run.layer
        if isinstance(layer, ProjectorLayer):
            if written not in {None, layer.widths[0]} and not isinstance(layer.stream, ImageStream):
                message = f"widths ({layer.widths[0]}, ...) must begin with {written}"
                yield f"/{index}/widths", message
            written = layer.widths[-1]
            continue
        if isinstance(layer, TracedLayer):
            written = None
            continue
        width = int(getattr(layer, "hidden"))  # noqa: B009 - every other layer has it
        is_start = isinstance(layer, EmbeddingLayer) and not layer.shared
        if written is not None and width != written and not is_start:
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
