"""What comes with the product, put into the database: published measurements and datasheets."""

import hashlib
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any, Final

from api.stores.devices import DeviceStore
from api.stores.profiles import ProfileStore
from planner.devices import device_facts, device_names
from planner.profile import BUILTIN_PACKAGE, builtin_profile, builtin_profile_names

SHIPPED_DIGEST: Final = "shipped_digest"
"""The fact of a built-in profile that says from which file of the package it was seeded."""


def seed_profiles(
    profiles: ProfileStore,
    *,
    names: Iterable[str] | None = None,
    on_work: Callable[[], None] | None = None,
) -> None:
    """Bring built-in profiles, by default all, to what this version ships; ``on_work`` is called first.

    Takes milliseconds where nothing has changed.
    """
    wanted = builtin_profile_names() if names is None else tuple(names)
    seeded = {name: facts.get(SHIPPED_DIGEST) for name, facts in profiles.built_in_facts().items()}
    outdated = [name for name in wanted if seeded.get(name) != shipped_digest(name)]
    if outdated and on_work is not None:
        on_work()
    for name in outdated:
        profiles.add(_profile_document(name), built_in=True)


def seed_devices(devices: DeviceStore) -> None:
    """Bring the known devices to what this version ships."""
    known = {device["name"]: device for device in devices.list_all()}
    shipped = [_device_document(name) for name in device_names()]
    changed = [device for device in shipped if device != known.get(device["name"])]
    if changed:
        devices.put(changed)


def shipped_digest(name: str) -> str:
    """Return the SHA-256 of the file that a built-in profile comes in."""
    file = resources.files(BUILTIN_PACKAGE) / f"{name.removesuffix('/published')}.json.gz"
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _profile_document(name: str) -> dict[str, Any]:
    document = builtin_profile(name).to_document()
    return document | {"facts": document["facts"] | {SHIPPED_DIGEST: shipped_digest(name)}}


def _device_document(name: str) -> dict[str, Any]:
    return {"name": name, **device_facts(name)}
