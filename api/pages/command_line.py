"""A request as a ``meshplan`` command: by options where they say it all, else with the document itself."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from api.pages.form_fields import FIXED_PATH, PLAN_PATH
from api.pages.remainder import Remainder, single_word

OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "--model": ("model", "preset"),
    "--num-layers": ("model", "num_layers"),
    "--cluster": ("cluster", "preset"),
    "--global-batch": ("job", "global_batch_size"),
    "--sequence": ("job", "sequence_length"),
    "--framework": ("job", "framework"),
    "--precision": ("job", "precision"),
    "--optimizer": ("job", "optimizer"),
    "--attention": ("job", "attention"),
    "--memory-fraction": ("constraints", "memory_fraction"),
    "--time-limit": ("solver", "time_limit_seconds"),
    "--relative-gap": ("solver", "relative_gap"),
}
"""The field of a request that an option fills; ``--cluster`` takes the number of devices besides."""
REPEATED: Final[Mapping[str, tuple[str, ...]]] = {
    "--forbid": ("constraints", "forbid"),
    "--allow": ("constraints", "allow"),
    "--profile": ("profiles",),
}
"""Options for lists, given once for each entry."""
FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "--explain": ("solver", "explain"),
    "--sensitivity": ("solver", "sensitivity"),
}
"""Options without a value, for what a request turns on."""
OF_A_SEARCH: Final = frozenset({"--time-limit", "--relative-gap"})
DEVICES: Final = ("cluster", "num_devices")
BOUNDS: Final = ("constraints", "bounds")


def meshplan_command(request: Mapping[str, Any], *, is_evaluation: bool) -> str:
    """Return the command that asks for a request without defaults."""
    verb = "evaluate" if is_evaluation else "plan"
    rest = Remainder(request)
    options = list(_options(rest, is_evaluation=is_evaluation))
    if rest.left():
        return f"meshplan {verb} - <<'JSON'\n{json.dumps(request, indent=2)}\nJSON"
    return f"meshplan {verb} {shlex.join(options)}"


def _options(rest: Remainder, *, is_evaluation: bool) -> Iterator[str]:
    for option, path in OPTIONS.items():
        if is_evaluation and option in OF_A_SEARCH:
            continue
        value = rest.take(path)
        if value is not None:
            devices = f":{rest.take(DEVICES)}" if option == "--cluster" else ""
            yield from (option, f"{value}{devices}")
    for option, path in FLAGS.items():
        if not is_evaluation and rest.take(path):
            yield option
    yield from _choices(rest, "--plan", PLAN_PATH) if is_evaluation else _choices(rest, "--fix", FIXED_PATH)
    for word, (smallest, largest) in (rest.take(BOUNDS) or {}).items():
        yield from ("--bound", f"{word}={smallest}..{largest}")
    for option, path in REPEATED.items():
        for entry in rest.take(path) or ():
            yield from (option, str(entry))


def _choices(rest: Remainder, option: str, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the flat words of a plan; a plan in its full form is left where it is."""
    chosen = rest.look(path)
    if not isinstance(chosen, Mapping) or "stages" in chosen:
        return
    for word, value in rest.take(path).items():
        said = single_word(value)
        yield from (option, f"{word}={said if isinstance(said, str) else json.dumps(said)}")
