"""What the contract can say and the planner cannot answer yet: refused by name, never passed over."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from planner.errors import InvalidRequest

EVERY: Final = "*"
"""A step of a path that stands for every field of an object, or every entry of a list."""

SUPPORTED: Final[Mapping[str, tuple[object, ...]]] = {
    "/job/sequence_lengths": (None,),
    "/objective/minimize": ("step_time",),
    "/objective/deadline_seconds": (None,),
    "/objective/tokens": (None,),
    "/constraints/fixed/offload/*/nvme": (0.0,),
    "/plan/offload/*/nvme": (0.0,),
    "/plan/stages/*/chunks/*/layers/*/offload/*/nvme": (0.0,),
    "/plan/stages/*/chunks/*/layers/*/mesh": (None,),
    "/plan/stages/*/chunks/*/layers/*/sharding": (None,),
    "/plan/stages/*/chunks/*/layers/*/of": (None, "reference"),
    "/plan/stages/*/placement/*/batch_share": (1.0,),
    **{
        f"{where}/{word}": (None,)
        for where in ("/constraints/fixed", "/constraints/fixed/sharding", "/plan", "/plan/sharding")
        for word in ("experts",)
    },
}
"""The values that a field may have so far, by its path in a normalised request."""


def refuse_unsupported(request: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for the first field of a normalised request that cannot be answered yet."""
    for path, supported in SUPPORTED.items():
        for pointer, value in _values_at(request, path.split("/")[1:]):
            if value not in supported:
                name = pointer.rpartition("/")[2]
                words = " or ".join(map(json.dumps, supported))
                raise InvalidRequest(
                    f"{name} may only be {words} so far", pointer=pointer, nearest_legal=supported
                )


def _values_at(here: Any, path: Sequence[str], pointer: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Yield the values at a path with their pointers; where the path leads nowhere, nothing."""
    if not path:
        yield pointer, here
        return
    for step, value in _steps(here, path[0]):
        yield from _values_at(value, path[1:], f"{pointer}/{step}")


def _steps(here: Any, step: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    if isinstance(here, list) and step == EVERY:
        yield from ((str(index), value) for index, value in enumerate(here))
    elif isinstance(here, dict) and step == EVERY:
        yield from here.items()
    elif isinstance(here, dict) and step in here:
        yield step, here[step]
