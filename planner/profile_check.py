"""How far a profile's figures can be trusted where they were not measured, kind by kind."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cluster import Device, NodeGroup
from planner.cluster_presets import cluster_from_preset, cluster_preset_document, system_names
from planner.cost.leave_one_device_out import leave_one_device_out
from planner.cost.leave_one_out import LeftOut, leave_one_out
from planner.devices import device_by_name, device_names
from planner.measured_machine import describes_machine, machine_device
from planner.profile import Profile, builtin_profiles

__all__ = ["LeftOut", "ProfileCheck", "check_profile"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileCheck:
    """The errors of one profile.

    ``rows_left_out``: each row found from the profile's other rows. ``device_left_out``: each row
    found from relatives alone, as if nobody had measured the device; empty where it has none.
    """

    name: str
    device: str
    rows: int
    has_device: bool
    """Whether it is known on what the rows were measured."""
    rows_left_out: tuple[LeftOut, ...]
    device_left_out: tuple[LeftOut, ...]


def check_profile(profile: Profile, *, others: Sequence[Profile] | None = None) -> ProfileCheck:
    """Return how wrong a profile's figures are; ``others`` are by default the built-in ones."""
    device = _device_of(profile)
    rows_left_out: tuple[LeftOut, ...] = ()
    device_left_out: tuple[LeftOut, ...] = ()
    if device is not None:
        relatives = builtin_profiles() if others is None else others
        rows_left_out = leave_one_out(profile, device)
        device_left_out = leave_one_device_out(profile, device, relatives, node=_node_of(profile))
    return ProfileCheck(
        name=profile.name,
        device=profile.device,
        rows=profile.num_rows,
        has_device=device is not None,
        rows_left_out=rows_left_out,
        device_left_out=device_left_out,
    )


def _node_of(profile: Profile) -> NodeGroup | None:
    """Return a node of the system that a profile is named after, else of one with its device."""
    system = profile.name.partition("/")[0]
    names = sorted(system_names(), key=lambda name: name != system)
    for name in names:
        document = cluster_preset_document(name)
        if document["device"] == profile.device:
            (group,) = cluster_from_preset(name, document["devices_per_node"]).node_groups
            return group
    return None


def _device_of(profile: Profile) -> Device | None:
    """Return the device of a profile; None for one of hosts and drives."""
    if profile.device in device_names():
        return device_by_name(profile.device)
    return machine_device(profile) if describes_machine(profile.facts) else None
