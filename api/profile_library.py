"""Profiles as requests use them: chosen by name or by device, read once, and the machines they describe."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from api.seeding import SHIPPED_DIGEST, seed_profiles, shipped_digest
from api.stores.profiles import ProfileStore, ProfileSummary
from planner.cluster import Cluster
from planner.errors import UnknownName
from planner.measured_machine import cluster_of_machine, describes_machine
from planner.names import nearest_names
from planner.profile import Profile, builtin_profile, builtin_profile_names
from planner.relatives import published

LOCAL = "local"
"""The cluster preset that stands for the machine that was measured last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredProfile:
    """A profile and the digest under which it is stored."""

    profile: Profile
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileLibrary:
    """The profiles of a store; what was read stays in memory."""

    store: ProfileStore
    seeds: bool = False
    """Whether built-in profiles are put into the store when they are asked for, rather than all before."""
    _read: dict[tuple[str, str, int], StoredProfile] = field(default_factory=dict)

    def for_devices(self, devices: Iterable[str]) -> tuple[StoredProfile, ...]:
        """Return the profiles that were measured on any of these devices, by device and name."""
        wanted = sorted(set(devices))
        if self.seeds:
            seed_profiles(self.store, names=[entry.name for entry in published() if entry.device in wanted])
        return tuple(
            self._profile(summary) for device in wanted for summary in self.store.summaries(device=device)
        )

    def named(self, names: Sequence[str]) -> tuple[StoredProfile, ...]:
        """Return the profiles of these names; UnknownName for one that is not there."""
        if self.seeds:
            seed_profiles(self.store, names=set(names) & set(builtin_profile_names()))
        known = {summary.name: summary for summary in self.store.summaries()}
        for position, name in enumerate(names):
            if name not in known:
                raise UnknownName(
                    f"no profile {name!r}",
                    pointer=f"/profiles/{position}",
                    nearest_legal=nearest_names(name, {*known, *builtin_profile_names()}),
                )
        return tuple(self._profile(known[name]) for name in dict.fromkeys(names))

    def machines(self) -> dict[str, ProfileSummary]:
        """Return the profiles that describe the machine they were measured on, newest first, by preset name.

        The first of them is ``local`` too.
        """
        described = [
            summary
            for summary in self.store.summaries()
            if not summary.built_in and describes_machine(summary.facts)
        ]
        newest = sorted(described, key=lambda summary: summary.created_at, reverse=True)
        return {LOCAL: newest[0]} | {summary.name: summary for summary in newest} if newest else {}

    def machine_cluster(self, preset: str, *, num_devices: int) -> Cluster | None:
        """Return so many devices of a machine that was measured, None where no such machine was."""
        summary = self.machines().get(preset)
        if summary is None:
            return None
        return cluster_of_machine(self._profile(summary).profile, num_devices=num_devices, name=preset)

    def _profile(self, summary: ProfileSummary) -> StoredProfile:
        key = (summary.name, summary.digest, _num_rows(summary))
        if key not in self._read:
            self._read[key] = StoredProfile(profile=self._load(summary), digest=summary.digest)
        return self._read[key]

    def _load(self, summary: ProfileSummary) -> Profile:
        if _is_as_shipped(summary):
            return builtin_profile(summary.name)
        document = self.store.get(summary.name)
        if document is None:
            raise UnknownName(f"profile {summary.name!r} was deleted", pointer="/profiles")
        return Profile.from_document(document)


def _is_as_shipped(summary: ProfileSummary) -> bool:
    """Whether all rows of a built-in profile are still there: the package then has them ready to use."""
    name = summary.name
    if not summary.built_in or name not in builtin_profile_names():
        return False
    same_file = summary.facts.get(SHIPPED_DIGEST) == shipped_digest(name)
    return same_file and _num_rows(summary) == builtin_profile(name).num_rows


def _num_rows(summary: ProfileSummary) -> int:
    return summary.num_kernels + summary.num_collectives + summary.num_transfers
