"""Which devices have published measurements, and what each one's profile is called."""

from typing import Final, NamedTuple


class Measured(NamedTuple):
    """A device with measurements: its name here, and the name it has in the published tables."""

    device: str
    published_as: str


HOSTS: Final = "hosts"
"""The profile of hosts and drives, which belong to no device."""
HOST_PREFIX: Final = "host:"
"""Where a published name of a host or drive begins."""

_NAMES: Final = {
    "a10": "A10-24GB",
    "a100-pcie-40gb": "A100-PCIE-40GB",
    "a100-pcie-80gb": "A100-PCIE-80GB",
    "a100-sxm-40gb": "A100-SXM4-40GB",
    "a100-sxm-80gb": "A100-SXM4-80GB",
    "a10g": "A10G-24GB",
    "a40": "A40-48GB",
    "arc-pro-b60": "ARC-PRO-B60-24GB",
    "b200": "B200-SXM-180GB",
    "b300": "B300-SXM-288GB",
    "gaudi2": "GAUDI2-96GB",
    "gaudi3": "GAUDI3-128GB",
    "gb200": "GB200-186GB",
    "gb300": "GB300-288GB",
    "gh200-141gb": "GH200-141GB",
    "gh200-96gb": "GH200-96GB",
    "h100-nvl": "H100-NVL-94GB",
    "h100-pcie": "H100-PCIE-80GB",
    "h100-sxm": "H100-SXM5-80GB",
    "h200-sxm": "H200-SXM-141GB",
    "l4": "L4-24GB",
    "l40": "L40-48GB",
    "l40s": "L40S-48GB",
    "mi100": "MI100-32GB",
    "mi210": "MI210-64GB",
    "mi300x": "MI300X-192GB",
    "mi325x": "MI325X-256GB",
    "mi355x": "MI355X-288GB",
    "p100-pcie": "P100-PCIE-16GB",
    "p4": "P4-8GB",
    "rtx-2080-ti": "RTX-2080TI-11GB",
    "rtx-3090": "RTX-3090-24GB",
    "rtx-3090-ti": "RTX-3090TI-24GB",
    "rtx-4090": "RTX-4090-24GB",
    "rtx-6000-ada": "RTX-6000-ADA-48GB",
    "rtx-a6000": "RTX-A6000-48GB",
    "rtx-pro-6000": "RTX-PRO-6000-SERVER-96GB",
    "t4": "T4-16GB",
    "titan-rtx": "TITAN-RTX-24GB",
    "v100-pcie-32gb": "V100-PCIE-32GB",
    "v100-sxm-16gb": "V100-SXM2-16GB",
    "v100-sxm-32gb": "V100-SXM2-32GB",
}
_DIES: Final = {
    # Kernels and collectives of these were measured on one die of the two in a package.
    "mi250": Measured("MI250-GCD-64GB", "MI250-128GB"),
    "mi250x": Measured("MI250X-GCD-64GB", "MI250X-128GB"),
}
SYSTEMS: Final = {system: Measured(device, device) for system, device in _NAMES.items()} | _DIES
"""Name of the system, as in ``SYSTEM/published``, and the device that its rows were measured on."""
