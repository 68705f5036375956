"""Profiles as the key of what was made of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from planner.profile import Profile


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileSet:
    """Profiles in their order, told from others by their digests: equal content serves for equal content."""

    digests: tuple[str, ...]
    profiles: tuple[Profile, ...] = field(compare=False)

    @classmethod
    def of(cls, profiles: Iterable[Profile]) -> "ProfileSet":
        """Return profiles under their digests."""
        whole = tuple(profiles)
        return cls(digests=tuple(profile.digest for profile in whole), profiles=whole)
