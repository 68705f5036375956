"""The planner's own chain document: ``{"layers": [{"kind": ..., "count": ..., fields}, ...]}``, both ways.

The fields of an entry are those of the layer of its kind; what a layer has a default for may be left out.
A ``block`` is made of ``branches``, each with its ``type`` and the fields of that, a ``traced`` layer of
operators likewise.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from planner.errors import InvalidRequest, UnknownName
from planner.names import nearest_names
from planner.workload.block import BlockLayer
from planner.workload.chain_rules import check_chain
from planner.workload.classifier import ClassifierLayer
from planner.workload.convolutional import ConvolutionalLayer
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer, NormLayer
from planner.workload.image_pools import PoolLayer
from planner.workload.layer_fields import read_fields, written_fields
from planner.workload.layers import LayerRun, Workload
from planner.workload.lstm import LstmLayer
from planner.workload.patches import PatchLayer
from planner.workload.pooling import AttentionPoolLayer
from planner.workload.prediction import PredictionLayer
from planner.workload.projector import ProjectorLayer
from planner.workload.sizes import MAX_COUNT, UnfitValue, require_size, shown
from planner.workload.tables import InteractionLayer, TablesLayer
from planner.workload.traced import TracedLayer
from planner.workload.transformer import DecoderLayer

AnyLayer = (
    EmbeddingLayer
    | DecoderLayer
    | BlockLayer
    | PatchLayer
    | AttentionPoolLayer
    | ProjectorLayer
    | PredictionLayer
    | NormLayer
    | HeadLayer
    | ClassifierLayer
    | ConvolutionalLayer
    | PoolLayer
    | LstmLayer
    | TablesLayer
    | InteractionLayer
    | TracedLayer
)

LAYERS: Final[Mapping[str, type[AnyLayer]]] = {
    "embedding": EmbeddingLayer,
    "decoder": DecoderLayer,
    "block": BlockLayer,
    "patches": PatchLayer,
    "attention_pool": AttentionPoolLayer,
    "projector": ProjectorLayer,
    "mtp": PredictionLayer,
    "norm": NormLayer,
    "head": HeadLayer,
    "classifier": ClassifierLayer,
    "convolutional": ConvolutionalLayer,
    "pool": PoolLayer,
    "lstm": LstmLayer,
    "tables": TablesLayer,
    "interaction": InteractionLayer,
    "traced": TracedLayer,
}
"""The layer that an entry describes; what a plan calls it is the layer's own kind, often its ``role``."""

OUTSIDE: Final = ("kind", "count")
"""Keys of an entry that are no fields of its layer."""


def workload_from_layers(document: Mapping[str, object], pointer: str = "/model") -> Workload:
    """Return the model that a chain document describes.

    Raises InvalidRequest (UnknownName for a kind or a field that nothing has) with the JSON pointer
    of what is wrong, also where the layers do not fit one another.
    """
    where = f"{pointer}/layers"
    runs = tuple(
        _run(entry, pointer=f"{where}/{index}") for index, entry in enumerate(_entries(document, where))
    )
    check_chain(runs, pointer=where)
    first = runs[0].layer
    positions = first.positions if isinstance(first, EmbeddingLayer) else 0
    return Workload(name="custom", family="custom", runs=runs, default_sequence_length=positions or None)


def layers_document(workload: Workload) -> dict[str, object]:
    """Return the chain document of a workload; ``workload_from_layers`` reads it back.

    Raises TypeError for a layer that has no place in the document.
    """
    return {"layers": [_entry(run) for run in workload.runs]}


def _entry(run: LayerRun) -> dict[str, object]:
    layer = run.layer
    kind = next((kind for kind, known in LAYERS.items() if type(layer) is known), None)
    if kind is None or not isinstance(layer, AnyLayer):
        raise TypeError(f"a {type(layer).__name__} has no place in a chain document")
    return {"kind": kind, "count": run.count, **written_fields(layer)}


def _entries(document: Mapping[str, object], pointer: str) -> Sequence[object]:
    entries = document.get("layers")
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise InvalidRequest("layers must be a list of at least one layer", pointer=pointer)
    return entries


def _run(entry: object, *, pointer: str) -> LayerRun:
    if not isinstance(entry, Mapping):
        raise InvalidRequest(f"a layer must be an object, not {shown(entry)}", pointer=pointer)
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in LAYERS:
        nearest = nearest_names(kind, LAYERS) if isinstance(kind, str) else sorted(LAYERS)
        message = f"no layer is of kind {shown(kind)}"
        raise UnknownName(message, pointer=f"{pointer}/kind", nearest_legal=nearest)
    given = {key: value for key, value in entry.items() if key not in OUTSIDE}
    layer = read_fields(LAYERS[kind], given, what=f"a layer of kind {kind}", pointer=pointer)
    try:
        count = require_size("count", entry.get("count", 1), largest=MAX_COUNT)
    except UnfitValue as error:
        raise InvalidRequest(str(error), pointer=f"{pointer}/{error.name}") from error
    return LayerRun(layer=layer, count=count)
