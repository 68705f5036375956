"""The devices that a cluster may be of."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from api.catalogue import show_device
from api.dependencies import CurrentService
from api.names import found
from api.schemas.catalogue import DeviceListDocument

router = APIRouter(prefix="/v1/devices", tags=["devices"])


@router.get("")
def read_devices(service: CurrentService) -> DeviceListDocument:
    """List all devices."""
    return DeviceListDocument(devices=tuple(service.workspace.devices.list_all()))


@router.get("/{name:path}")
def read_device(name: str, service: CurrentService) -> Mapping[str, Any]:
    """Show a device by one of its names."""
    with found(name):
        return show_device(name, devices=service.workspace.devices)
