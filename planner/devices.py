"""Devices by name: datasheet facts, and every name that people and drivers call a device by."""

import difflib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from planner.cluster import Device
from planner.errors import AmbiguousName, UnknownName

NEAREST: Final = 3
"""Names offered in place of an unknown one."""

MAKERS: Final = frozenset({"nvidia", "amd", "intel", "tesla", "geforce", "instinct"})
"""Words that a name may have or lack."""

ALIASES: Final[Mapping[str, str]] = {
    "NVIDIA A100-SXM4-40GB": "A100-SXM4-40GB",
    "NVIDIA A100-SXM4-80GB": "A100-SXM4-80GB",
    "A100-SXM-40GB": "A100-SXM4-40GB",
    "A100-SXM-80GB": "A100-SXM4-80GB",
    "A100-40GB-PCIe": "A100-PCIE-40GB",
    "NVIDIA A100-PCIE-40GB": "A100-PCIE-40GB",
    "NVIDIA A100 80GB PCIe": "A100-PCIE-80GB",
    "A100-80GB-PCIe": "A100-PCIE-80GB",
    "NVIDIA H100 80GB HBM3": "H100-SXM5-80GB",
    "H100-SXM": "H100-SXM5-80GB",
    "H100-SXM5": "H100-SXM5-80GB",
    "H100 SXM 80GB": "H100-SXM5-80GB",
    "NVIDIA H100 PCIe": "H100-PCIE-80GB",
    "NVIDIA H100 NVL": "H100-NVL-94GB",
    "NVIDIA H200": "H200-SXM-141GB",
    "H200": "H200-SXM-141GB",
    "H200-SXM": "H200-SXM-141GB",
    "H200 141GB HBM3e": "H200-SXM-141GB",
    "NVIDIA GH200 480GB": "GH200-96GB",
    "NVIDIA GH200 120GB": "GH200-96GB",
    "NVIDIA B200": "B200-SXM-180GB",
    "B200": "B200-SXM-180GB",
    "B200-SXM": "B200-SXM-180GB",
    "NVIDIA GB200": "GB200-186GB",
    "GB200": "GB200-186GB",
    "NVIDIA B300 SXM6 AC": "B300-SXM-288GB",
    "B300": "B300-SXM-288GB",
    "NVIDIA GB300": "GB300-288GB",
    "GB300": "GB300-288GB",
    "NVIDIA L40S": "L40S-48GB",
    "NVIDIA L40": "L40-48GB",
    "NVIDIA L4": "L4-24GB",
    "NVIDIA A10": "A10-24GB",
    "NVIDIA A10G": "A10G-24GB",
    "NVIDIA A40": "A40-48GB",
    "NVIDIA RTX A6000": "RTX-A6000-48GB",
    "A6000": "RTX-A6000-48GB",
    "NVIDIA RTX 6000 Ada Generation": "RTX-6000-ADA-48GB",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX-PRO-6000-SERVER-96GB",
    "NVIDIA GeForce RTX 4090": "RTX-4090-24GB",
    "NVIDIA GeForce RTX 3090": "RTX-3090-24GB",
    "NVIDIA GeForce RTX 3090 Ti": "RTX-3090TI-24GB",
    "NVIDIA GeForce RTX 2080 Ti": "RTX-2080TI-11GB",
    "NVIDIA TITAN RTX": "TITAN-RTX-24GB",
    "NVIDIA GeForce GTX 1650": "GTX-1650-4GB",
    "Tesla V100-SXM2-16GB": "V100-SXM2-16GB",
    "Tesla V100-SXM2-32GB": "V100-SXM2-32GB",
    "Tesla V100-PCIE-32GB": "V100-PCIE-32GB",
    "Tesla T4": "T4-16GB",
    "Tesla P100-PCIE-16GB": "P100-PCIE-16GB",
    "Tesla P4": "P4-8GB",
    "AMD Instinct MI100": "MI100-32GB",
    "AMD Instinct MI210": "MI210-64GB",
    "AMD Instinct MI250": "MI250-128GB",
    "AMD Instinct MI250X": "MI250X-128GB",
    "AMD Instinct MI300X": "MI300X-192GB",
    "AMD Instinct MI325X": "MI325X-256GB",
    "AMD Instinct MI355X": "MI355X-288GB",
}
"""Other names of a device: what nvidia-smi and rocm-smi print, and short names in use.

Case, blanks, dashes and the maker's name do not matter; a Kubernetes product label is the nvidia-smi
name with dashes.
"""


def device_names() -> tuple[str, ...]:
    """Return the names of all devices, sorted."""
    return tuple(sorted(_facts()))


def device_facts(name: str) -> Mapping[str, Any]:
    """Return what the datasheet says of a device, with its sources; KeyError for other names."""
    return _facts()[name]


def device_by_name(name: str, *, pointer: str = "/cluster") -> Device:
    """Return the device that a name or alias means.

    Raises AmbiguousName when several devices answer to it, UnknownName when none does; ``pointer``
    is the place of the name in the request.
    """
    if name in _facts():
        return _device(name)
    known = _by_key().get(_key(name))
    if known is not None:
        return _device(known)
    choices = tuple(sorted(device for device in _facts() if _has_words(device, name)))
    if len(choices) == 1:
        return _device(choices[0])
    if choices:
        raise AmbiguousName(
            f"{name!r} may be any of {', '.join(choices)}", pointer=pointer, nearest_legal=choices
        )
    nearest = _nearest(name)
    raise UnknownName(
        f"no device {name!r}; nearest: {', '.join(nearest)}", pointer=pointer, nearest_legal=nearest
    )


def _nearest(name: str) -> tuple[str, ...]:
    """Return the devices whose names or aliases are spelled most alike."""
    known = _by_key()
    close = difflib.get_close_matches(_key(name), known, n=2 * NEAREST, cutoff=0.0)
    return tuple(dict.fromkeys(known[match] for match in close))[:NEAREST]


def _has_words(device: str, name: str) -> bool:
    """Tell whether every word of ``name`` begins a word of the device: "A100 80GB", "V100-SXM"."""
    own, wanted = _words(device), _words(name)
    return bool(wanted) and all(any(word.startswith(want) for word in own) for want in wanted)


def _words(name: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in MAKERS]


def _key(name: str) -> str:
    """Spell a name without case, maker, blanks and dashes."""
    return "".join(_words(name))


@cache
def _by_key() -> Mapping[str, str]:
    keys = {_key(device): device for device in _facts()}
    return {**{_key(alias): device for alias, device in ALIASES.items() if device in _facts()}, **keys}


@cache
def _facts() -> Mapping[str, Mapping[str, Any]]:
    text = (resources.files("planner") / "devices.json").read_text(encoding="utf-8")
    facts: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return facts


@cache
def _device(name: str) -> Device:
    facts = _facts()[name]
    return Device(
        name=name,
        memory_bytes=facts["memory_bytes"],
        peak_flops_per_second=facts["peak_flops_per_second"],
        memory_bandwidth_bytes_per_second=facts["memory_bandwidth_bytes_per_second"],
        power_watts=facts.get("power_watts"),
        vendor=facts["vendor"],
        architecture=facts["architecture"],
    )
