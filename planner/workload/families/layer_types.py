"""Which kind of attention each layer has: listed in a config, or by the rule of its family."""

from collections.abc import Callable, Sequence
from typing import Final

from planner.workload.config_keys import ConfigKeys

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
CHUNKED: Final = "chunked_attention"
LINEAR: Final = "linear_attention"


def read_layer_types(
    keys: ConfigKeys, num_layers: int, *, rule: Callable[[int], str], known: Sequence[str]
) -> tuple[str, ...]:
    """Return the type of every layer: ``layer_types``, or by the rule where the file has none."""
    return keys.words("layer_types", [rule(place) for place in range(num_layers)], known)


def every(period: int, *, odd_one: str, others: str) -> Callable[[int], str]:
    """Return the rule by which the last of every ``period`` layers is of another type than the others."""
    return lambda place: others if (place + 1) % period else odd_one


def read_switched_windows(
    keys: ConfigKeys, num_layers: int, *, default: int | None, first: int = 28
) -> list[int | None]:
    """Return every layer's window as Qwen has them: switched on, from layer ``max_window_layers`` up."""
    is_on = keys.flag("use_sliding_window", default=False)
    given = keys.size_or_none("sliding_window", default) if is_on else None
    first = keys.count("max_window_layers", first)
    keys.ignore("sliding_window")

    def rule(place: int) -> str:
        return SLIDING if given is not None and place >= first else FULL

    types = read_layer_types(keys, num_layers, rule=rule, known=(FULL, SLIDING))
    return [given if kind == SLIDING else None for kind in types]
