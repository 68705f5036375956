"""The names nearest to a misspelt one."""

import re
from collections.abc import Iterable
from difflib import get_close_matches


def nearest_names(name: str, known: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """Return up to ``limit`` known names closest to ``name``, best first; all when few exist.

    Those that it abbreviates come first (``tp`` for ``tensor_parallel``), then those that begin with it, then
    those that are spelt like it.
    """
    candidates = sorted(known)
    meant = [candidate for candidate in candidates if name.lower() == _initials(candidate)]
    spelt = {candidate.lower(): candidate for candidate in candidates}
    begun = [candidate for lower, candidate in spelt.items() if name and lower.startswith(name.lower())]
    close = [spelt[match] for match in get_close_matches(name.lower(), spelt, n=limit, cutoff=0.4)]
    return tuple([*dict.fromkeys([*meant, *begun, *close])] or candidates)[:limit]


def _initials(name: str) -> str:
    """Return the first letters of a name's words; nothing of a single word."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    return "".join(word[0] for word in words) if len(words) > 1 else ""
