"""The stages of a plan as rows: devices, layers of each chunk, recomputation, memory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from api.pages.plan_words import END_KINDS
from api.pages.quantities import bytes_scale, percent

SHOWN_STAGES: Final = 16
"""Rows that are shown at once; the rest is folded away."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRow:
    """One stage, in words."""

    stage: int
    devices: str
    chunks: tuple[str, ...]
    num_layers: int
    """Without the embedding, the last norm and the head."""
    recompute: str
    peak: str
    share: str


def stage_rows(plan: Mapping[str, Any], prediction: Mapping[str, Any] | None) -> tuple[StageRow, ...]:
    """Return one row per stage; memory is empty where nothing is predicted."""
    memory = {entry["stage"]: entry for entry in (prediction or {}).get("memory") or ()}
    groups = {placement["node_group"] for stage in plan["stages"] for placement in stage["placement"]}
    return tuple(
        _row(stage, memory.get(stage["stage"]), names_groups=len(groups) > 1) for stage in plan["stages"]
    )


def _row(stage: Mapping[str, Any], memory: Mapping[str, Any] | None, *, names_groups: bool) -> StageRow:
    layers = [layer for chunk in stage["chunks"] for layer in chunk["layers"] if not layer.get("of")]
    peak = bytes_scale(memory["peak_bytes"]).quantity(memory["peak_bytes"]) if memory else ""
    return StageRow(
        stage=stage["stage"],
        devices="; ".join(
            _placement(placement, names_groups=names_groups) for placement in stage["placement"]
        ),
        chunks=tuple(", ".join(_layers(chunk["layers"])) for chunk in stage["chunks"]),
        num_layers=sum(layer["count"] for layer in layers if layer["kind"] not in END_KINDS),
        recompute=_recompute(layers),
        peak=str(peak),
        share=percent(memory["peak_bytes"] / memory["capacity_bytes"], decimals=0) if memory else "",
    )


def _placement(placement: Mapping[str, Any], *, names_groups: bool) -> str:
    ranges = ", ".join(_device_range(devices) for devices in placement["devices"])
    return f"{placement['node_group']}: {ranges}" if names_groups else ranges


def _device_range(devices: Mapping[str, int]) -> str:
    first, number, stride = devices["first"], devices["count"], devices.get("stride", 1)
    if number == 1:
        return str(first)
    every = f" by {stride}" if stride > 1 else ""
    return f"{first}\N{EN DASH}{first + (number - 1) * stride}{every}"


def _layers(layers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Name a chunk's layers; neighbours that differ only in how they are run are one range."""
    merged: list[tuple[str, int, int]] = []
    for layer in layers:
        kind, first, number = _kind(layer), int(layer["first"]), int(layer["count"])
        if merged and merged[-1][0] == kind and merged[-1][1] + merged[-1][2] == first:
            merged[-1] = (kind, merged[-1][1], merged[-1][2] + number)
        else:
            merged.append((kind, first, number))
    for kind, first, number in merged:
        if kind.rpartition(" ")[2] in END_KINDS:
            yield kind
        elif number == 1:
            yield f"{kind} {first}"
        else:
            yield f"{kind} {first}\N{EN DASH}{first + number - 1}"


def _kind(layer: Mapping[str, Any]) -> str:
    return f"{layer['of']} {layer['kind']}" if layer.get("of") else str(layer["kind"])


def _recompute(layers: Sequence[Mapping[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for layer in layers:
        recompute = layer.get("recompute") or {"mode": "none"}
        if layer["kind"] not in END_KINDS:
            modules = ", ".join(recompute.get("modules") or ()).replace("_", " ")
            name = f"{recompute['mode']} ({modules})" if modules else recompute["mode"]
            counts[name] = counts.get(name, 0) + layer["count"]
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} in {number}" for name, number in counts.items()) or "none"
