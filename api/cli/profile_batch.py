"""What a batch job that measures has to say, whichever scheduler takes it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from api.cli.documents import bad_option
from planner.units import Seconds

USUAL_SECONDS: Final[Seconds] = 1800.0
"""What the ladder and a minute of load take on a node of accelerators, with room to spare."""
START_SECONDS: Final[Seconds] = 600.0
"""Until the nodes are there, torch is loaded and the processes have met."""
SLACK: Final = 1.25
USUAL_LOAD_SECONDS: Final[Seconds] = 60.0
"""A minute shows the clock that a device sustains."""
PORT: Final = 29500
"""Where the processes meet, as torchrun has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchJob:
    """One job: so many nodes with so many devices each, and the arguments of the profiler."""

    nodes: int
    devices_per_node: int
    is_cpu: bool
    output: Path
    arguments: tuple[str, ...]
    limit_seconds: Seconds
    upload: str | None

    @classmethod
    def of(cls, options: Mapping[str, Any], *, output: Path, request: Path | None) -> "BatchJob":
        """Return the job that the options of the command describe."""
        is_cpu = options["device"] == "cpu"
        load = options["load_seconds"] or (None if is_cpu else USUAL_LOAD_SECONDS)
        limit = options["seconds_limit"]
        said: Mapping[str, object] = {
            "output": output,
            "device": "cpu" if is_cpu else "cuda",
            "name": options["name"],
            "seconds-limit": limit,
            "load-seconds": load,
            "drive-file": options["drive_file"],
            "request": request,
        }
        arguments = [text for key, value in said.items() if value for text in (f"--{key}", str(value))]
        return cls(
            nodes=options["nodes"],
            devices_per_node=options["devices_per_node"],
            is_cpu=is_cpu,
            output=output,
            arguments=(*arguments, *(["--afresh"] if options["afresh"] else [])),
            limit_seconds=START_SECONDS + SLACK * ((limit or USUAL_SECONDS) + (load or 0.0)),
            upload=options["upload"],
        )

    @property
    def limit_minutes(self) -> int:
        """The time limit to ask for."""
        return math.ceil(self.limit_seconds / 60)


def required_output(options: Mapping[str, Any], *, why: str) -> Path:
    """Return the file that was named for the profile; ProblemError where none was."""
    if not options["output"]:
        raise bad_option("--output", why)
    return Path(options["output"]).absolute()
