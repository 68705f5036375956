"""Which sizes, probabilities and switches a layer may have; nonsense is refused with its numbers."""

from enum import StrEnum
from typing import Final, TypeGuard

MAX_SIZE: Final = 10**7
"""Above any width, vocabulary, head count or position count that can be meant."""

MAX_COUNT: Final = 10**5
"""Above any number of layers that can be meant."""


class UnfitValue(ValueError):  # noqa: N818 - reads as what happened
    """A value that a field cannot have; ``name`` is the field."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name} {message}")
        self.name = name


def require_size(name: str, value: object, *, smallest: int = 1, largest: int = MAX_SIZE) -> int:
    """Return ``value`` when it is a whole number in range; UnfitValue otherwise."""
    if not is_whole_number(value):
        raise UnfitValue(name, f"({shown(value)}) must be a whole number")
    if not smallest <= value <= largest:
        raise UnfitValue(name, f"({shown(value)}) must be from {smallest} to {largest}")
    return value


def require_size_or_none(name: str, value: object) -> int | None:
    """Return ``value`` when it is None or a whole number in range; UnfitValue otherwise."""
    return None if value is None else require_size(name, value)


def require_probability(name: str, value: object) -> float:
    """Return ``value`` when it is a number from 0 up to but not including 1; UnfitValue otherwise."""
    if not is_number(value):
        raise UnfitValue(name, f"({shown(value)}) must be a number")
    if not 0 <= value < 1:
        raise UnfitValue(name, f"({shown(value)}) must be at least 0 and below 1")
    return float(value)


def require_flag(name: str, value: object) -> bool:
    """Return ``value`` when it is true or false; UnfitValue otherwise."""
    if not isinstance(value, bool):
        raise UnfitValue(name, f"({shown(value)}) must be true or false")
    return value


def require_word(name: str, value: object, words: type[StrEnum]) -> None:
    """Refuse a ``value`` that is not one of the words with UnfitValue."""
    if not isinstance(value, words):
        raise UnfitValue(name, f"({shown(value)}) must be one of {', '.join(words)}")


def require_divisible(name: str, value: int, *, by_name: str, by: int) -> None:
    """Refuse a ``value`` that is no multiple of ``by`` with UnfitValue."""
    if value % by:
        raise UnfitValue(name, f"({value}) must be a multiple of {by_name} ({by})")


def is_whole_number(value: object) -> TypeGuard[int]:
    """Tell whether a value is an integer; a truth value is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a value is an integer or a float (NaN is one, and lies in no range)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: object, *, limit: int = 40) -> str:
    """Return a value as a message quotes it, cut where it is long."""
    if is_whole_number(value):  # the text of an integer of thousands of digits is refused by Python itself
        return str(value) if value.bit_length() < 4 * limit else f"about 2^{value.bit_length()}"
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."
