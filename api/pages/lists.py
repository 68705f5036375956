"""What there is, as tables: plans, models, clusters, devices, profiles."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from api.pages.quantities import bytes_scale, count, parameters, rate
from api.pages.request_summary import request_summary
from api.pages.verdict import status_word
from api.schemas.catalogue import ClusterEntryDocument, ModelEntryDocument, ProfileSummaryDocument
from api.stores.plans import PlanKind, PlanRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A text, where it leads, and its tone where it is a verdict."""

    text: str
    href: str = ""
    tone: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column by its name; numbers stand on the right."""

    name: str
    is_number: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ListPage:
    """One table; ``empty`` stands in place of a table without rows."""

    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str = "None yet."


def plans_page(records: Iterable[PlanRecord]) -> ListPage:
    """Return the page of recent requests, newest first."""
    return ListPage(
        title="Recent plans",
        note="",
        columns=_columns("what", "asked for", "how it ended", "when"),
        rows=tuple(map(_plan_row, records)),
        empty="Nothing has been planned yet.",
    )


def models_page(models: Iterable[ModelEntryDocument]) -> ListPage:
    """Return the page of the models that a request may name."""
    return ListPage(
        title="Models",
        note="Any other model: its config.json, in the form or in a request.",
        columns=_columns("name", "family", numbers=("parameters",)),
        rows=tuple(
            (
                Cell(text=model.name, href=f"/?model_preset={model.name}"),
                Cell(text=model.family),
                Cell(text=parameters(model.parameters)),
            )
            for model in models
        ),
    )


def clusters_page(clusters: Iterable[ClusterEntryDocument]) -> ListPage:
    """Return the page of the systems that a request may name."""
    return ListPage(
        title="Clusters",
        note="With any number of nodes. Other machines: as node groups, or measured by meshplan profile.",
        columns=_columns("name", "system", "device", "known from", numbers=("devices per node",)),
        rows=tuple(
            (
                Cell(text=cluster.name, href=f"/?cluster_preset={cluster.name}"),
                Cell(text=cluster.title),
                Cell(text=cluster.device),
                Cell(text="a measurement" if cluster.is_measured else "its datasheet"),
                Cell(text=count(cluster.devices_per_node)),
            )
            for cluster in clusters
        ),
    )


def devices_page(devices: Iterable[Mapping[str, Any]]) -> ListPage:
    """Return the page of the devices that a node group may be of."""
    return ListPage(
        title="Devices",
        note="Datasheet figures; what a device really does stands in its profiles.",
        columns=_columns(
            "name",
            "vendor",
            "architecture",
            numbers=("memory", "memory bandwidth", "densest peak, bf16 or fp16"),
        ),
        rows=tuple(map(_device_row, devices)),
    )


def profiles_page(profiles: Iterable[ProfileSummaryDocument]) -> ListPage:
    """Return the page of the measurements that predictions are made from."""
    return ListPage(
        title="Profiles",
        note="What was measured, by whom: predictions say which of them they used.",
        columns=_columns(
            "name", "device", "source", "digest", numbers=("kernels", "collectives", "transfers")
        ),
        rows=tuple(map(_profile_row, profiles)),
    )


def _columns(*texts: str, numbers: tuple[str, ...] = ()) -> tuple[Column, ...]:
    words = (Column(name=name) for name in texts)
    return (*words, *(Column(name=name, is_number=True) for name in numbers))


def _plan_row(record: PlanRecord) -> tuple[Cell, ...]:
    summary = request_summary(record.request)
    ended = status_word(record.status, record.state)
    facts = dict(summary.facts)
    asked = ", ".join(f"{name} {facts[name]}" for name in ("global batch", "sequence") if name in facts)
    verb = "prediction, " if record.kind is PlanKind.EVALUATION else ""
    return (
        Cell(text=f"{summary.model} on {summary.machines}", href=f"/plans/{record.id}"),
        Cell(text=verb + asked),
        Cell(text=f"{ended.sign} {ended.word}", tone=ended.tone),
        Cell(text=f"{record.created_at:%Y-%m-%d %H:%M} UTC"),
    )


def _device_row(device: Mapping[str, Any]) -> tuple[Cell, ...]:
    peaks = device.get("peak_flops_per_second") or {}
    peak = max((peaks.get(precision) or 0 for precision in ("bf16", "fp16")), default=0)
    bandwidth = device.get("memory_bandwidth_bytes_per_second")
    memory = device["memory_bytes"]
    return (
        Cell(text=device["name"]),
        Cell(text=device.get("vendor") or ""),
        Cell(text=device.get("architecture") or ""),
        Cell(text=str(bytes_scale(memory).quantity(memory))),
        Cell(text=str(rate(bandwidth, "B/s")) if bandwidth else ""),
        Cell(text=str(rate(peak, "FLOP/s")) if peak else ""),
    )


def _profile_row(profile: ProfileSummaryDocument) -> tuple[Cell, ...]:
    return (
        Cell(text=profile.name, href=f"/profiles/{quote(profile.name)}"),
        Cell(text=profile.device),
        Cell(text="built in" if profile.built_in else f"{profile.created_at:%Y-%m-%d %H:%M} UTC"),
        Cell(text=profile.digest[:12]),
        Cell(text=count(profile.num_kernels)),
        Cell(text=count(profile.num_collectives)),
        Cell(text=count(profile.num_transfers)),
    )
