"""Devices by name: datasheet facts, and every name that people and drivers call a device by."""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

from planner.cluster import Device
from planner.errors import AmbiguousName, UnknownName

NEAREST: Final = 3
"""Names offered in place of an unknown one."""

MAKERS: Final = frozenset({"nvidia", "amd", "intel", "tesla", "geforce", "instinct"})
"""Words that a name may have or lack."""


def device_names() -> tuple[str, ...]:
    """Return the names of all devices, sorted."""
    return tuple(sorted(_facts()))


def device_facts(name: str) -> Mapping[str, Any]:
    """Return what the datasheet says of a device, with its sources; KeyError for other names."""
    return _facts()[name]


def device_aliases(name: str) -> tuple[str, ...]:
    """Return other names of a device: what nvidia-smi, rocm-smi and schedulers print, and short names in use.

    Case, blanks, dashes and the maker's name do not matter; a Kubernetes product label is the nvidia-smi
    name with dashes. KeyError for the name of no device.
    """
    return tuple(_aliases()[name])


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
    return bool(wanted) and all(any(_begins(want, word) for word in own) for want in wanted)


def _begins(start: str, word: str) -> bool:
    """Tell whether a word begins so, cut between letters and digits: SXM begins SXM2, H20 not H200."""
    if not word.startswith(start):
        return False
    following = word[len(start) :]
    return not following or following[0].isdigit() != start[-1].isdigit()


def _words(name: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in MAKERS]


def _key(name: str) -> str:
    """Spell a name without case, maker, blanks and dashes."""
    return "".join(_words(name))


@cache
def _by_key() -> Mapping[str, str]:
    keys = {_key(device): device for device in _facts()}
    aliases = {_key(alias): device for device, names in _aliases().items() for alias in names}
    return aliases | keys


@cache
def _aliases() -> Mapping[str, Sequence[str]]:
    text = (resources.files("planner") / "device_aliases.json").read_text(encoding="utf-8")
    aliases: Mapping[str, Sequence[str]] = json.loads(text)
    return aliases


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
