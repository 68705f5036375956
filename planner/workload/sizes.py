"""Which sizes and probabilities a layer may have; nonsense is refused with its numbers."""

from typing import Final, TypeGuard

MAX_SIZE: Final = 10**7
"""Above any width, vocabulary, head count or position count that can be meant."""


def require_size(name: str, value: object, *, smallest: int = 1, largest: int = MAX_SIZE) -> int:
    """Return ``value`` when it is a whole number in range; ValueError otherwise."""
    if not is_whole_number(value):
        raise ValueError(f"{name} ({value!r}) must be a whole number")
    if not smallest <= value <= largest:
        raise ValueError(f"{name} ({value}) must be from {smallest} to {largest}")
    return value


def require_probability(name: str, value: object) -> float:
    """Return ``value`` when it is a number from 0 up to but not including 1; ValueError otherwise."""
    if not is_number(value):
        raise ValueError(f"{name} ({value!r}) must be a number")
    if not 0 <= value < 1:
        raise ValueError(f"{name} ({value}) must be at least 0 and below 1")
    return float(value)


def is_whole_number(value: object) -> TypeGuard[int]:
    """Tell whether a value is an integer; a truth value is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a value is an integer or a float (NaN is one, and lies in no range)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def require_divisible(name: str, value: int, *, by_name: str, by: int) -> None:
    """ValueError unless ``value`` is a multiple of ``by``."""
    if value % by:
        raise ValueError(f"{name} ({value}) must be a multiple of {by_name} ({by})")
