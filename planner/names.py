"""The names nearest to a misspelt one."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_names(name: str, known: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """Return up to ``limit`` known names closest to ``name``, best first; all when few exist."""
    candidates = sorted(known)
    close = get_close_matches(name.lower(), candidates, n=limit, cutoff=0.4)
    return tuple(close or candidates[:limit])
