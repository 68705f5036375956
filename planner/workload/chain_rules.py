"""Which layers fit one another in a chain."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from planner.errors import InvalidRequest
from planner.workload.block import BlockLayer
from planner.workload.convolutional import ConvolutionalLayer
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer
from planner.workload.image_pools import PoolLayer
from planner.workload.layers import (
    DECODER,
    EMBEDDING,
    ENCODER,
    HEAD,
    NORM,
    PROJECTOR,
    VISION,
    Layer,
    LayerRun,
    Workload,
)
from planner.workload.lstm import LSTM, LstmLayer
from planner.workload.patches import PatchLayer
from planner.workload.projector import ProjectorLayer
from planner.workload.streams import ImageStream
from planner.workload.tables import InteractionLayer, TablesLayer
from planner.workload.traced import TracedLayer
from planner.workload.transformer import DecoderLayer

REPEATED: Final = (
    DecoderLayer,
    BlockLayer,
    ConvolutionalLayer,
    LstmLayer,
    InteractionLayer,
    TracedLayer,
)
"""The layers that do the work of some model; a chain without any is none."""
Complaint = tuple[str, str]
"""Where under the list of layers, and what is wrong."""


def check_chain(runs: Sequence[LayerRun], *, pointer: str) -> None:
    """Refuse layers that do not make one model, with InvalidRequest under ``pointer``."""
    for rule in RULES:
        for where, message in rule(runs):
            raise InvalidRequest(message, pointer=f"{pointer}{where}")


def at_another_depth(workload: Workload, num_layers: int, *, pointer: str) -> Workload:
    """Return the same model with so many layers of the kind that counts.

    Refuses models that have no such layers, and those whose layers differ too much to be fewer or more, with
    InvalidRequest at ``pointer``.
    """
    kind = next((kind for kind in (DECODER, ENCODER, LSTM) if workload.count(kind)), None)
    if kind is None:
        raise InvalidRequest(f"{workload.name} has no layers whose number could be another", pointer=pointer)
    changed = workload.with_num_layers(num_layers, kind=kind)
    try:
        check_chain(changed.runs, pointer=pointer)
    except InvalidRequest as error:
        message = f"{workload.name} with {num_layers} layers does not fit together: {error}"
        raise InvalidRequest(message, pointer=pointer, nearest_legal=(workload.count(kind),)) from error
    return changed


def _has_a_repeated_layer(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    if not any(isinstance(run.layer, REPEATED) for run in runs):
        yield "", "the chain needs a layer of kind decoder, block, convolutional, lstm, interaction or traced"


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
        if isinstance(layer, TracedLayer):
            written = None
            continue
        width, field = _width_read(layer), WIDTH_FIELDS.get(type(layer), "hidden")
        if written is not None and width != written and not _starts_anew(layer):
            yield f"/{index}/{field}", _misfit(layer, field, width=width, written=written)
        if run.count > 1 and _width_written(layer) != width:
            message = f"count ({run.count}) must be 1: it reads {width} channels, writes another number"
            yield f"/{index}/count", message
        written = _width_written(layer)


WIDTH_FIELDS: Final[Mapping[type[Layer], str]] = {
    ConvolutionalLayer: "parts",
    LstmLayer: "inputs",
    PoolLayer: "channels",
    ProjectorLayer: "widths",
    TablesLayer: "width",
    InteractionLayer: "vectors",
}
"""The field that says how many channels a layer reads, where it is not ``hidden``."""


def _width_read(layer: Layer) -> int:
    match layer:
        case ProjectorLayer():
            return layer.widths[0]
        case ConvolutionalLayer() | LstmLayer() | PoolLayer() | TablesLayer() | InteractionLayer():
            return layer.inputs
        case _:
            return int(getattr(layer, "hidden"))  # noqa: B009 - every other layer has it


def _width_written(layer: Layer) -> int:
    match layer:
        case ProjectorLayer():
            return layer.widths[-1]
        case ConvolutionalLayer() | LstmLayer() | PoolLayer() | TablesLayer() | InteractionLayer():
            return layer.outputs
        case _:
            return _width_read(layer)


def _starts_anew(layer: Layer) -> bool:
    """Tell whether a layer need not read what the one before it writes."""
    if isinstance(layer, ProjectorLayer):
        return isinstance(layer.stream, ImageStream)
    return isinstance(layer, EmbeddingLayer) and not layer.shared


def _misfit(layer: Layer, field: str, *, width: int, written: int) -> str:
    if isinstance(layer, ProjectorLayer):
        return f"widths ({width}, ...) must begin with {written}"
    if field == "hidden":
        return f"hidden ({width}) must be that of the layer before ({written})"
    return f"{field} must read the {written} channels of the layer before, not {width}"


def _maps_agree(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    """Every position of a map stands for as many pixels as the layers before leave it."""
    pixels: int | None = None
    for index, run in enumerate(runs):
        layer = run.layer
        if not isinstance(layer, ConvolutionalLayer | PoolLayer):
            pixels = None
            continue
        read = layer.stream.patch_size
        if pixels not in {None, read}:
            message = f"patch_size ({read}) must be {pixels}, as many pixels as the layers before leave"
            yield f"/{index}/stream/patch_size", message
        stride = layer.stride if isinstance(layer, ConvolutionalLayer) else 1
        if run.count > 1 and stride > 1:
            yield f"/{index}/count", f"count ({run.count}) must be 1: it has a stride of {stride}"
        pixels = read * stride


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
    _maps_agree,
    _tied_head_has_its_embedding,
)
