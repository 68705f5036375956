"""What was observed of a run: its step time, its peak memory, whether it fit."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from planner.units import GIBIBYTE, Bytes, Seconds
from planner.validation.rows import Row

RAN: Final = frozenset({"no", "false"})
OUT_OF_MEMORY: Final = frozenset({"yes", "true", "oom"})
FIRST_RANK_LOGS: Final = ("nanotron",)
"""Programs that print the memory of rank 0 alone, which sits on the first stage.

nanotron's trainer logs its peaks with ``rank=0``; where one micro-batch makes the step, the last stage of its
runs needs 1.7 times what they print.
"""


RESERVED_LOGS: Final = ("nanotron",)
"""Programs whose logs print what the allocator holds.

nanotron's trainer resets its peaks after the passes of each of the first steps (``log_memory``): what it then
prints as allocated is that of the update alone, what it prints as reserved that of the whole step.
"""


class MemoryKind(StrEnum):
    """What a printed peak counts: live tensors, what their allocator holds, or all that the driver gave."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    WHOLE = "whole"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The observations of one run; ``None`` where the row does not say.

    ``has_failed_unexplained`` is set where it failed and the row cannot tell whether for memory.
    """

    step_time_seconds: Seconds | None = None
    peak_memory_bytes: Bytes | None = None
    memory_kind: MemoryKind = MemoryKind.ALLOCATED
    is_of_first_stage: bool = False
    """Whether the peak is that of the first stage, rather than of the fullest."""
    fits: bool | None = None
    has_failed_unexplained: bool = False

    @property
    def says_nothing(self) -> bool:
        """Whether there is nothing to hold a prediction against."""
        return self.step_time_seconds is None and self.peak_memory_bytes is None and self.fits is None


UNKNOWN: Final = Measured()


def measured_of(row: Row) -> Measured:
    """Return what a row observed; UnusableRow where a figure is none."""
    step_time, memory = _step_time(row), row.number("peak_mem_gib")
    verdict = row.text("oom").lower()
    ran = verdict in RAN or step_time is not None or memory is not None
    return Measured(
        step_time_seconds=step_time,
        peak_memory_bytes=memory * GIBIBYTE if memory else None,
        memory_kind=_memory_kind(row),
        is_of_first_stage=row.text("framework").lower().startswith(FIRST_RANK_LOGS),
        fits=False if verdict in OUT_OF_MEMORY else ran or None,
        has_failed_unexplained=not ran and bool(verdict) and verdict not in OUT_OF_MEMORY,
    )


def _step_time(row: Row) -> Seconds | None:
    """Return the step time, printed or from tokens per second; FLOP rates are counted in too many ways."""
    seconds, rate = row.number("step_time_s"), row.number("tokens_per_s_per_gpu")
    if seconds:
        return seconds
    samples, length, devices = (row.whole(column) for column in ("gbs", "seq_len", "gpus"))
    if rate and samples and length and devices:
        return samples * length / (rate * devices)
    return None


def _memory_kind(row: Row) -> MemoryKind:
    """Return what the peak counts: tools of the driver see the whole, a trainer's log its tensors."""
    notes = row.text("notes").lower()
    seen_outside = any(words in notes for words in ("as seen on the node", "nvidia-smi", "rocm-smi"))
    if seen_outside:
        return MemoryKind.WHOLE
    is_reserved = row.text("framework").lower().startswith(RESERVED_LOGS)
    return MemoryKind.RESERVED if is_reserved else MemoryKind.ALLOCATED
