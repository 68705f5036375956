"""An accelerator on the wire, by one of its names or by its numbers."""

from typing import Annotated, Self

from pydantic import Discriminator, Field, Tag

from api.schemas.document import EXPERIMENTAL, InputDocument, Name, Quantity
from planner.cluster import Device


class DeviceDocument(InputDocument):
    """One accelerator by its numbers."""

    name: Name
    memory_bytes: Quantity = Field(description="What the driver reports.")
    peak_flops_per_second: dict[Name, Quantity] = Field(
        min_length=1, description="Dense peaks by precision: fp32, tf32, fp16, bf16, fp8, …"
    )
    memory_bandwidth_bytes_per_second: Quantity
    power_watts: Quantity | None = None
    vendor: Name | None = Field(default=None, json_schema_extra=EXPERIMENTAL)
    architecture: Name | None = Field(
        default=None,
        description="ampere, hopper, …: relatives tell what was not measured on the device itself.",
        json_schema_extra=EXPERIMENTAL,
    )

    @classmethod
    def from_device(cls, device: Device) -> Self:
        """Return the document of a device."""
        return cls(
            name=device.name,
            memory_bytes=device.memory_bytes,
            peak_flops_per_second=dict(device.peak_flops_per_second),
            memory_bandwidth_bytes_per_second=device.memory_bandwidth_bytes_per_second,
            power_watts=device.power_watts,
            vendor=device.vendor or None,
            architecture=device.architecture or None,
        )

    def to_device(self) -> Device:
        """Return the device that the document says."""
        return Device(
            name=self.name,
            memory_bytes=self.memory_bytes,
            peak_flops_per_second=dict(self.peak_flops_per_second),
            memory_bandwidth_bytes_per_second=self.memory_bandwidth_bytes_per_second,
            power_watts=self.power_watts,
            vendor=self.vendor or "",
            architecture=self.architecture or "",
        )


def _form_of_device(value: object) -> str:
    return "name" if isinstance(value, str) else "numbers"


DeviceChoice = Annotated[
    Annotated[Name, Tag("name")] | Annotated[DeviceDocument, Tag("numbers")], Discriminator(_form_of_device)
]
"""A device by one of its names, or by its numbers."""
