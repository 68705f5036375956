"""Numbers as people read them: one unit for a column, and rounded parts that add up to their total."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.units import format_bytes, format_count, format_seconds

SIGNIFICANT_DIGITS: Final = 4
"""Of a duration: one more than the error bars deserve, so that small parts can still be added up."""
TRILLION: Final = 1e12
BILLION: Final = 1e9
MILLION: Final = 1e6
PERCENT: Final = 100

_SECONDS_IN: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BYTES_IN: Final = {
    "B": 1.0,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
    "PiB": 2.0**50,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """A number and its unit, apart, so that numbers align in a column."""

    number: str
    unit: str

    def __str__(self) -> str:
        """Return both, with a space that does not break a line."""
        return f"{self.number}\N{NO-BREAK SPACE}{self.unit}" if self.unit else self.number


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """One unit and one number of decimals for values that stand together."""

    unit: str
    base: float
    """One of this unit, in base units."""
    decimals: int

    def number(self, value: float) -> str:
        """Return a value in base units as a number of this unit."""
        return f"{value / self.base:,.{self.decimals}f}"

    def quantity(self, value: float) -> Quantity:
        """Return a value in base units with its unit."""
        return Quantity(number=self.number(value), unit=self.unit)

    def parts(self, values: Sequence[float]) -> list[str]:
        """Return the numbers of parts, rounded so that they add up to the rounded total.

        The largest remainders are rounded up (Hamilton's method); no part moves by a whole last digit.
        """
        step = self.base / 10**self.decimals
        counts = [math.floor(value / step) for value in values]
        missing = round(sum(values) / step) - sum(counts)
        by_remainder = sorted(range(len(values)), key=lambda index: counts[index] - values[index] / step)
        for index in by_remainder[:missing]:
            counts[index] += 1
        return [self.number(count * step) for count in counts]


def seconds_scale(largest: float) -> Scale:
    """Return the scale for durations up to the given seconds."""
    unit = format_seconds(largest).rsplit(" ", 1)[1]
    base = _SECONDS_IN[unit]
    digits_before = math.floor(math.log10(largest / base)) + 1 if largest > 0 else 1
    return Scale(unit=unit, base=base, decimals=max(0, SIGNIFICANT_DIGITS - digits_before))


def bytes_scale(largest: float) -> Scale:
    """Return the scale for sizes up to the given bytes."""
    unit = format_bytes(largest).rsplit(" ", 1)[1]
    return Scale(unit=unit, base=_BYTES_IN[unit], decimals=0 if unit == "B" else 1)


PERCENT_SCALE: Final = Scale(unit="%", base=1 / PERCENT, decimals=1)


def percent(fraction: float, *, decimals: int = 1) -> str:
    """Return a fraction of one in percent: ``percent(0.431) == "43.1 %"``."""
    return f"{fraction * PERCENT:.{decimals}f}\N{NO-BREAK SPACE}%"


def signed_percent(fraction: float) -> str:
    """Return a change in percent, with its sign: ``signed_percent(0.031) == "+3.1 %"``."""
    return f"{fraction * PERCENT:+.1f}\N{NO-BREAK SPACE}%".replace("-", "\N{MINUS SIGN}")


def count(value: float) -> str:
    """Return a whole number with its thousands apart: ``count(4120) == "4,120"``."""
    return f"{value:,.0f}"


def rounded_count(value: float) -> str:
    """Return a large number to four digits with its thousands apart, a small one to four digits."""
    if value <= 0:
        return "0"
    digits_before = math.floor(math.log10(value)) + 1
    decimals = SIGNIFICANT_DIGITS - digits_before
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def parameters(value: float) -> str:
    """Return a number of parameters in words: ``parameters(70.55e9) == "70.6 billion"``."""
    for size, name in ((TRILLION, "trillion"), (BILLION, "billion"), (MILLION, "million")):
        if value >= size:
            digits_before = math.floor(math.log10(value / size)) + 1
            return f"{value / size:.{max(0, 3 - digits_before)}f} {name}"
    return count(value)


def rate(value: float, unit: str) -> Quantity:
    """Return a rate with a decimal prefix: ``rate(426.1e12, "FLOP/s")`` is 426 TFLOP/s."""
    number, _, prefix = format_count(value).partition(" ")
    return Quantity(number=number, unit=prefix + unit)


_SUPERSCRIPTS: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
LARGEST_WRITTEN_OUT: Final = 1e6


def magnitude(value: float) -> str:
    """Return a count of any size: written out up to a million, then as a power of ten."""
    if value <= LARGEST_WRITTEN_OUT:
        return count(value)
    exponent = math.floor(math.log10(value))
    power = str(exponent).translate(_SUPERSCRIPTS)
    return f"{value / 10**exponent:.1f}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}10{power}"
