"""Parts of a whole as segments of one bar, in percent of the bar's width."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

WHOLE: Final = 100.0
"""The bar's width, in percent."""
LETTER_WIDTH: Final = 1.7
"""Room for a letter of a name, in percent of a bar that takes half of a laptop's page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One part of a bar; ``start`` and ``width`` in percent of the bar's width."""

    key: str
    start: float
    width: float

    def has_room(self, name: str) -> bool:
        """Whether a name fits inside."""
        return self.width >= LETTER_WIDTH * len(name)


def stack(parts: Mapping[str, float], *, full: float) -> tuple[Segment, ...]:
    """Return the parts that are not nothing, one after the other, on a bar as wide as ``full``."""
    segments: list[Segment] = []
    start = 0.0
    for key, value in parts.items():
        if value <= 0 or full <= 0:
            continue
        width = WHOLE * value / full
        segments.append(Segment(key=key, start=start, width=width))
        start += width
    return tuple(segments)
