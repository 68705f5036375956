"""The clusters that a request may name."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.catalogue import list_clusters, show_cluster
from api.dependencies import CurrentService
from api.names import found
from api.schemas.catalogue import ClusterListDocument, NamedClusterDocument
from api.schemas.document import MAX_DEVICES

router = APIRouter(prefix="/v1/clusters", tags=["clusters"])


@router.get("")
def read_clusters(service: CurrentService) -> ClusterListDocument:
    """List all systems, and the machines that were profiled."""
    return ClusterListDocument(clusters=list_clusters(service.workspace.library))


@router.get("/{name:path}")
def read_cluster(
    name: str,
    service: CurrentService,
    num_devices: Annotated[int | None, Query(ge=1, le=MAX_DEVICES)] = None,
) -> NamedClusterDocument:
    """Show a cluster with some number of devices, by default those of one node."""
    with found(name):
        return show_cluster(name, num_devices=num_devices, library=service.workspace.library)
