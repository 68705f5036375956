"""The names nearest to a misspelt one."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_names(name: str, known: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """Return up to ``limit`` known names closest to ``name``, best first; all when few exist.

    Names that begin with what was given come first, then those that are spelt like it.
    """
    candidates = sorted(known)
    spelt = {candidate.lower(): candidate for candidate in candidates}
    begun = [candidate for lower, candidate in spelt.items() if name and lower.startswith(name.lower())]
    close = [spelt[match] for match in get_close_matches(name.lower(), spelt, n=limit, cutoff=0.4)]
    return tuple([*dict.fromkeys([*begun, *close])] or candidates)[:limit]
