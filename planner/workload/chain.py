"""The planner's own chain document: ``{"layers": [{"kind": ..., "count": ..., fields}, ...]}``, both ways.

The fields of an entry are those of the layer of its kind; what a layer has a default for may be left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from typing import Any, Final

from planner.errors import InvalidRequest, UnknownName
from planner.names import nearest_names
from planner.workload.chain_rules import check_chain
from planner.workload.ends import EmbeddingLayer, HeadLayer, NormLayer
from planner.workload.layers import LayerRun, Workload
from planner.workload.passes import Norm
from planner.workload.sizes import MAX_COUNT, UnfitValue, require_size, shown
from planner.workload.transformer import DecoderLayer

AnyLayer = EmbeddingLayer | DecoderLayer | NormLayer | HeadLayer

LAYERS: Final[Mapping[str, type[AnyLayer]]] = {
    layer.kind: layer for layer in (EmbeddingLayer, DecoderLayer, NormLayer, HeadLayer)
}
"""The layer of each kind."""

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
    if not isinstance(layer, AnyLayer):
        raise TypeError(f"a {type(layer).__name__} has no place in a chain document")
    return {"kind": layer.kind, "count": run.count, **asdict(layer)}


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
    try:
        count = require_size("count", entry.get("count", 1), largest=MAX_COUNT)
        return LayerRun(layer=_layer(LAYERS[kind], entry, pointer=pointer), count=count)
    except UnfitValue as error:
        raise InvalidRequest(str(error), pointer=f"{pointer}/{error.name}") from error


def _layer(layer: type[AnyLayer], entry: Mapping[str, Any], *, pointer: str) -> AnyLayer:
    given = {key: value for key, value in entry.items() if key not in OUTSIDE}
    known = {field.name: field.default is MISSING for field in fields(layer)}
    for key in given:
        if key not in known:
            raise UnknownName(
                f"a layer of kind {layer.kind} has no field {shown(key)}",
                pointer=f"{pointer}/{_escaped(key)}",
                nearest_legal=nearest_names(key, known),
            )
    for key, is_required in known.items():
        if is_required and key not in given:
            raise InvalidRequest(f"a layer of kind {layer.kind} needs {key}", pointer=f"{pointer}/{key}")
    if "norm" in given:
        given["norm"] = _norm(given["norm"], pointer=f"{pointer}/norm")
    return layer(**given)


def _norm(value: object, *, pointer: str) -> Norm:
    if not isinstance(value, str) or value not in set(Norm):
        raise InvalidRequest(
            f"norm ({shown(value)}) is not known", pointer=pointer, nearest_legal=tuple(Norm)
        )
    return Norm(value)


def _escaped(key: str) -> str:
    """Return a key as a JSON pointer spells it (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
