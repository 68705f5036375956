"""What binds, what was given up, what would help; each sentence cites the field that backs it."""

from planner.plan import Prediction
from planner.units import format_bytes


def memory_warnings(prediction: Prediction, *, memory_fraction: float) -> tuple[str, ...]:
    """Return a warning for every stage between the safe line and the capacity."""
    return tuple(
        f"stage {stage.stage} needs {format_bytes(stage.peak_bytes)} of {format_bytes(stage.capacity_bytes)}: "
        f"over the safe line of {memory_fraction:.0%}, so it may run out of memory"
        for stage in prediction.memory
        if stage.fits and stage.peak_bytes > memory_fraction * stage.capacity_bytes
    )
