"""What can be named in a request: models, clusters, devices and profiles, listed and shown."""

from collections.abc import Mapping
from typing import Any

from api.jobs.answering import resolve_cluster
from api.profile_library import ProfileLibrary
from api.schemas.catalogue import (
    ClusterEntryDocument,
    ModelEntryDocument,
    ModelSummaryDocument,
    NamedClusterDocument,
    ProfileSummaryDocument,
)
from api.schemas.cluster import ClusterDocument
from api.stores.devices import DeviceStore
from api.stores.profiles import ProfileStore, ProfileSummary
from planner.cluster_presets import (
    cluster_preset_document,
    cluster_preset_names,
    smallest_whole,
    systems_of,
)
from planner.devices import device_by_name
from planner.errors import InvalidRequest, UnknownName
from planner.names import nearest_names
from planner.workload.layers import Workload
from planner.workload.presets import preset_names, preset_workload
from planner.workload.summary import model_summary


def list_models() -> tuple[ModelEntryDocument, ...]:
    """Return all presets of models, by name."""
    return tuple(map(_model_entry, preset_names()))


def show_model(workload: Workload, *, sequence_length: int | None = None) -> ModelSummaryDocument:
    """Return what a model consists of, at a sequence length or at the model's own.

    Raises InvalidRequest for a length that is none.
    """
    try:
        return ModelSummaryDocument.from_summary(model_summary(workload, sequence_length=sequence_length))
    except ValueError as error:
        raise InvalidRequest(str(error), pointer="/sequence_length") from error


def list_clusters(library: ProfileLibrary) -> tuple[ClusterEntryDocument, ...]:
    """Return all presets of clusters, and the machines that were profiled."""
    systems = (_system_entry(name) for name in cluster_preset_names())
    machines = (_machine_entry(name, summary) for name, summary in library.machines().items())
    return (*systems, *machines)


def show_cluster(
    name: str, *, num_devices: int | None = None, library: ProfileLibrary
) -> NamedClusterDocument:
    """Return a cluster with so many devices, by default one node (of each kind).

    UnknownName where nothing is called so.
    """
    if num_devices is None:
        num_devices = _devices_of_a_node(name, library=library)
    document = ClusterDocument(preset=name, num_devices=num_devices)
    cluster = resolve_cluster(document, library=library)
    is_system = name in cluster_preset_names()
    return NamedClusterDocument(
        name=name,
        num_devices=cluster.num_devices,
        cluster=ClusterDocument.from_cluster(cluster),
        sources=tuple(cluster_preset_document(name)["sources"]) if is_system else (),
    )


def show_device(name: str, *, devices: DeviceStore) -> Mapping[str, Any]:
    """Return what is known of a device by one of its names; UnknownName or AmbiguousName otherwise."""
    document = devices.get(name)
    if document is None:
        document = devices.get(device_by_name(name, pointer="/name").name)
    if document is None:
        raise UnknownName(f"no device {name!r}", pointer="/name")
    return document


def list_profiles(profiles: ProfileStore) -> tuple[ProfileSummaryDocument, ...]:
    """Return what profiles there are, by name."""
    return tuple(map(_profile_entry, profiles.summaries()))


def show_profile(name: str, *, profiles: ProfileStore) -> Mapping[str, Any]:
    """Return a profile with all its measurements; UnknownName where nothing is called so."""
    document = profiles.get(name)
    if document is None:
        nearest = nearest_names(name, profiles.names())
        raise UnknownName(f"no profile {name!r}", pointer="/name", nearest_legal=nearest)
    return document


def _model_entry(name: str) -> ModelEntryDocument:
    workload = preset_workload(name)
    return ModelEntryDocument(name=name, family=workload.family, parameters=workload.parameters)


def _system_entry(name: str) -> ClusterEntryDocument:
    systems = [cluster_preset_document(system) for system in systems_of(name)]
    return ClusterEntryDocument(
        name=name,
        title=cluster_preset_document(name)["title"],
        device=" + ".join(system["device"] for system in systems),
        devices_per_node=min(system["devices_per_node"] for system in systems),
        is_measured=False,
    )


def _machine_entry(name: str, summary: ProfileSummary) -> ClusterEntryDocument:
    return ClusterEntryDocument(
        name=name,
        title=str(summary.facts.get("cpu_model") or summary.device),
        device=summary.device,
        devices_per_node=int(summary.facts.get("processes_per_node", 1)),
        is_measured=True,
    )


def _devices_of_a_node(name: str, *, library: ProfileLibrary) -> int:
    if name in cluster_preset_names():
        return smallest_whole(name)
    sizes = {entry.name: entry.devices_per_node for entry in list_clusters(library)}
    return sizes.get(name, 1)


def _profile_entry(summary: ProfileSummary) -> ProfileSummaryDocument:
    return ProfileSummaryDocument(
        name=summary.name,
        device=summary.device,
        digest=summary.digest,
        built_in=summary.built_in,
        created_at=summary.created_at,
        software=summary.software,
        facts=summary.facts,
        source=summary.source,
        licence=summary.licence,
        num_kernels=summary.num_kernels,
        num_collectives=summary.num_collectives,
        num_transfers=summary.num_transfers,
    )
