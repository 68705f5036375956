"""Seconds, bytes, FLOP and their rates: base units inside, prefixes only where people read."""

from typing import Final

Seconds = float
Bytes = float
Flops = float
BytesPerSecond = float
FlopsPerSecond = float
Watts = float

KIBIBYTE: Final = 2**10
MEBIBYTE: Final = 2**20
GIBIBYTE: Final = 2**30
NANOSECONDS_PER_SECOND: Final = 1_000_000_000

LARGEST_PREFIXED: Final = 1e21
"""Counts from here on have no prefix that people know."""

_DECIMAL_PREFIXES: Final = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY_PREFIXES: Final = (
    (2.0**50, "PiB"),
    (2.0**40, "TiB"),
    (2.0**30, "GiB"),
    (2.0**20, "MiB"),
    (2.0**10, "KiB"),
)


def format_bytes(count: Bytes) -> str:
    """Return a byte count for people, in binary prefixes: ``format_bytes(2**31) == "2.0 GiB"``."""
    for scale, name in _BINARY_PREFIXES:
        if abs(count) >= scale:
            return f"{count / scale:.1f} {name}"
    return f"{count:.0f} B"


def format_seconds(duration: Seconds) -> str:
    """Return a duration for people: seconds, milliseconds or microseconds with three digits."""
    if duration == 0:
        return "0 s"
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(duration) >= scale:
            return (
                f"{duration / scale:.3g} {name}"
                if duration < 1000 * scale
                else f"{duration / scale:.0f} {name}"
            )
    return f"{duration * 1e9:.3g} ns"


def format_count(count: float) -> str:
    """Return a count for people: ``format_count(8.03e9) == "8.03 G"``, powers of ten beyond the prefixes."""
    if abs(count) >= LARGEST_PREFIXED:
        return f"{count:.2e}"
    for scale, prefix in _DECIMAL_PREFIXES:
        if abs(count) >= scale:
            return f"{count / scale:.3g} {prefix}"
    return f"{count:.3g}"
