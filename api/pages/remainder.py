"""A request taken apart field by field, so that what nothing has shown is known at the end."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any


class Remainder:
    """What is left of a request; the request itself stays as it was."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        """Begin with the whole request."""
        self._left: dict[str, Any] = deepcopy(dict(request))

    def look(self, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - the value of any field
        """Return the value at a path, None where there is none."""
        here: Any = self._left
        for step in path:
            here = here.get(step) if isinstance(here, Mapping) else None
        return here

    def take(self, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - the value of any field
        """Return the value at a path and leave it out from now on."""
        parent = self.look(path[:-1])
        return parent.pop(path[-1], None) if isinstance(parent, dict) else None

    def left(self) -> dict[str, Any]:
        """Return what was not taken, without the objects that nothing is left in."""
        return _without_empty(self._left)


def single_word(value: object) -> object:
    """Return the word of a choice that says nothing else: ``{"mode": "full"}`` is "full"."""
    if not isinstance(value, Mapping):
        return value
    said = {key: part for key, part in value.items() if part}
    words = [said[key] for key in ("mode", "name") if key in said]
    return words[0] if len(said) == len(words) == 1 else value


def _without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    inner = {
        key: _without_empty(value) if isinstance(value, Mapping) else value for key, value in document.items()
    }
    return {key: value for key, value in inner.items() if value != {}}
