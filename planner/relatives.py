"""Which published measurements speak for a device: its own, else those of its nearest relatives."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib import resources
from math import log
from typing import Final

from planner.cluster import Device
from planner.devices import device_by_name, device_names
from planner.formats import MEASURED_AS, STAND_INS, attention_precision, datasheet_peak, executed_precision
from planner.job import Precision
from planner.profile import BUILTIN_PACKAGE, Profile, builtin_profile
from planner.units import FlopsPerSecond

LEAST_SWEEP: Final = 800
LEAST_SCATTERED: Final = 24
"""Rows of one format that show how speed depends on shape: on a grid, and anywhere."""
LEAST_CORES: Final = 500
LEAST_COLLECTIVES: Final = 20
"""Rows of attention, and of one collective, that show how time depends on size."""
EQUAL: Final = 0.02
"""Peaks that differ by less are equal (the difference of their logarithms)."""
COMPARED: Final = (Precision.FP16, Precision.FP32)
"""Precisions whose peaks are compared: all but the oldest devices have the first."""


class Closeness(IntEnum):
    """How near two devices are by their descent, nearest first."""

    SAME_DEVICE = 0
    SAME_CHIP = 1
    """One architecture and equal peaks: A100 with 40 and 80 GB, H100 and H200."""
    SAME_ARCHITECTURE = 2
    """One compute architecture: sm_80, gfx942."""
    SAME_FAMILY = 3
    """One generation and line: Ampere, CDNA 3, Blackwell of data centres."""
    SAME_VENDOR = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What one built-in profile holds, without opening it: rows by "matrix_product bf16", "all_reduce"."""

    name: str
    device: str
    rows: Mapping[str, int]


def closeness(device: Device, other: Device) -> Closeness | None:
    """Return how near a device is to another by descent; None for strangers."""
    if device.name == other.name:
        return Closeness.SAME_DEVICE
    own, others = _words(device), _words(other)
    if own and own == others:
        return Closeness.SAME_CHIP if _has_equal_peaks(device, other) else Closeness.SAME_ARCHITECTURE
    if _is_same_family(own, others):
        return Closeness.SAME_FAMILY
    return Closeness.SAME_VENDOR if device.vendor and device.vendor == other.vendor else None


def nearest_first(device: Device, others: Iterable[Device]) -> list[Device]:
    """Return the relatives among other devices: by descent, then by peak, memory bandwidth and power."""
    near = [(closeness(device, other), _distance(device, other), other) for other in others]
    related = [(rank, apart, other) for rank, apart, other in near if rank is not None]
    return [other for _, _, other in sorted(related, key=lambda item: (item[0], item[1], item[2].name))]


def devices_that_speak_for(device: Device, precision: Precision) -> tuple[str, ...]:
    """Return the devices whose published measurements tell of a device at a precision, itself first.

    Relatives are named for what the device itself lacks: a sweep of products, attention cores,
    collectives of its own architecture.
    """
    by_device = {entry.device: entry for entry in published()}
    others = [device_by_name(name) for name in by_device if name in device_names() and name != device.name]
    relatives = nearest_first(device, others)
    wanted = [device.name] if device.name in by_device else []
    for need in _needs(executed_precision(device, precision)):
        own = by_device.get(device.name)
        if own is None or not need.is_met(own.rows):
            wanted += _first(need, device, relatives, by_device)
    return tuple(dict.fromkeys(wanted))


def published_profiles(device: Device, precision: Precision) -> tuple[Profile, ...]:
    """Return the built-in profiles of a device and of the relatives that speak for it."""
    names = {entry.device: entry.name for entry in published()}
    return tuple(builtin_profile(names[name]) for name in devices_that_speak_for(device, precision))


@cache
def published() -> tuple[Published, ...]:
    """Return what the built-in profiles hold, by name."""
    text = (resources.files(BUILTIN_PACKAGE) / "index.json").read_text(encoding="utf-8")
    return tuple(
        Published(name=f"{system}/published", device=entry["device"], rows=entry["rows"])
        for system, entry in json.loads(text).items()
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Need:
    """Something that predictions are made from, and how near a relative must be to tell of it."""

    is_met: Callable[[Mapping[str, int]], bool]
    furthest: Closeness


def _needs(precision: Precision) -> Iterator[_Need]:
    wide = attention_precision(precision)
    for one in dict.fromkeys((precision, wide)):
        yield _Need(is_met=_has_products(one, least=LEAST_SWEEP), furthest=Closeness.SAME_ARCHITECTURE)
        yield _Need(is_met=_has_products(one, least=LEAST_SCATTERED), furthest=Closeness.SAME_VENDOR)
    yield _Need(
        is_met=lambda rows: _rows_of("attention", MEASURED_AS[wide], rows) >= LEAST_CORES,
        furthest=Closeness.SAME_VENDOR,
    )
    yield _Need(
        is_met=lambda rows: rows.get("all_reduce", 0) >= LEAST_COLLECTIVES,
        furthest=Closeness.SAME_ARCHITECTURE,
    )


def _has_products(precision: Precision, *, least: int) -> Callable[[Mapping[str, int]], bool]:
    stand_ins = [one.precision for one in STAND_INS.get(precision, ())]
    formats = [name for one in (precision, *stand_ins) for name in MEASURED_AS[one]]
    return lambda rows: _rows_of("matrix_product", formats, rows) >= least


def _rows_of(operator: str, formats: Iterable[str], rows: Mapping[str, int]) -> int:
    return max(rows.get(f"{operator} {name}", 0) for name in formats)


def _first(
    need: _Need, device: Device, relatives: Iterable[Device], by_device: Mapping[str, Published]
) -> list[str]:
    for other in relatives:
        near = closeness(device, other)
        if near is not None and near <= need.furthest and need.is_met(by_device[other.name].rows):
            return [other.name]
    return []


def _words(device: Device) -> list[str]:
    """Return family and architecture: "blackwell-ultra sm_103 + grace" is ["blackwell", "sm_103"]."""
    return device.architecture.replace("-ultra", "").split(" ")[:2] if device.architecture else []


def _is_same_family(own: Sequence[str], others: Sequence[str]) -> bool:
    """Tell whether two devices are of one generation and line: sm_100 and sm_103, but not sm_120."""
    lines = [re.sub(r"\d$", "", architecture) for words in (own, others) for architecture in words[1:]]
    return bool(own and others) and own[0] == others[0] and len(set(lines)) <= 1


def _has_equal_peaks(device: Device, other: Device) -> bool:
    pairs = [_peaks(device, other, precision) for precision in COMPARED]
    known = [(one, another) for one, another in pairs if one and another]
    return bool(known) and all(abs(log(one / another)) < EQUAL for one, another in known)


def _distance(device: Device, other: Device) -> float:
    """Return how far two datasheets lie apart, in logarithms of their ratios.

    Power per FLOP counts most: it decides how much of its peak a device sustains.
    """
    wide, narrow = (_peaks(device, other, precision) for precision in COMPARED)
    peaks = wide if all(wide) else narrow
    bandwidths = (device.memory_bandwidth_bytes_per_second, other.memory_bandwidth_bytes_per_second)
    powers = (device.power_watts, other.power_watts)
    density = abs(_log_ratio(powers) - _log_ratio(peaks)) if all(powers) and all(peaks) else 0.0
    return 2.0 * density + 0.5 * (abs(_log_ratio(peaks)) + abs(_log_ratio(bandwidths)))


def _log_ratio(pair: tuple[float | None, float | None]) -> float:
    one, another = pair
    return log(one / another) if one and another else 0.0


def _peaks(
    device: Device, other: Device, precision: Precision
) -> tuple[FlopsPerSecond | None, FlopsPerSecond | None]:
    return datasheet_peak(device, precision), datasheet_peak(other, precision)
