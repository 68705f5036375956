"""The time of passes bound by memory bandwidth: measured curves, else a share of the device's bandwidth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.cluster import Device
from planner.cost.surface import Floats, Surface, monotone
from planner.measurements import KernelTable
from planner.profile import Estimate, Profile, Provenance
from planner.units import Bytes, BytesPerSecond, Seconds
from planner.workload.operators import Phase

START_SECONDS: Final[Seconds] = 4e-6
"""The shortest memory-bound kernels of the published tables take 3 to 5 us on the device."""
SHARES: Final[Mapping[str, float]] = {
    "add": 0.85,
    "adam": 0.80,
    "bias_dropout_add": 0.75,
    "copy": 0.77,
    "cross_entropy": 0.75,
    "depthwise": 0.13,
    "dropout": 0.60,
    "embedding": 0.50,
    "gated_activation": 0.70,
    "gelu": 0.75,
    "layer_norm": 0.72,
    "rms_norm": 0.72,
    "rotary": 0.55,
    "softmax": 0.65,
}
"""Rate of a fused training kernel over the datasheet's bandwidth, every byte counted once.

Adds 0.84 to 0.93 and copies 0.75 to 0.78 on A100 and H100; gelu 0.75 on A100 and 0.77 on H100; softmax
0.63 forward and 0.69 backward on A100; dropout 0.46 and 0.55 (random numbers cost more than bytes),
0.77 on H100; layer norm 0.66 to 0.79. Depth-wise convolutions are far from what memory allows: 0.13 makes
the published EfficientNet-B0 and B4 trainings of NVIDIA's DeepLearningExamples on A100 and V100 come out 18 %
too fast to 17 % too slow (at the 0.65 of other kernels they come out 20 to 49 % too fast). The rest are
placed between: no fused training kernel was published.
"""
OTHER_SHARE: Final = 0.65
LEAST_ROWS: Final = 3
ELEMENT_BYTES: Final[Mapping[str, int]] = {"fp32": 4, "tf32": 4, "fp32_or_tf32": 4, "fp16": 2, "bf16": 2}
FP32_BYTES: Final = 4
MASK_BYTES: Final = 1


@dataclass(frozen=True, slots=True)
class Moved:
    """What a measured row moves per element (or parameter): values of its format, and further bytes."""

    values: float
    more_bytes: float = 0.0

    def bytes_per_element(self, value_bytes: float) -> Bytes:
        """Return what moves per element of a format."""
        return self.values * value_bytes + self.more_bytes


MOVED: Final[Mapping[tuple[str, str], Moved]] = {
    ("add", "forward"): Moved(3),
    ("copy", "forward"): Moved(2),
    ("cross_entropy", "forward"): Moved(1, 3 * FP32_BYTES),
    ("cross_entropy", "backward"): Moved(1, 5 * FP32_BYTES),
    ("dropout", "forward"): Moved(2, MASK_BYTES),
    ("dropout", "backward"): Moved(2, MASK_BYTES),
    ("embedding", "forward"): Moved(2),
    ("embedding", "backward"): Moved(3),
    ("gated_activation", "forward"): Moved(3),
    ("gated_activation", "backward"): Moved(5),
    ("gelu", "forward"): Moved(2),
    ("gelu", "backward"): Moved(3),
    ("layer_norm", "forward"): Moved(2),
    ("layer_norm", "backward"): Moved(3),
    ("permute", "forward"): Moved(2),
    ("rms_norm", "forward"): Moved(2),
    ("rms_norm", "backward"): Moved(3),
    ("rotary", "forward"): Moved(12),
    ("rotary", "backward"): Moved(12),
    ("softmax", "forward"): Moved(2),
    ("softmax", "backward"): Moved(3),
    ("adam", "optimizer"): Moved(7),
    ("sgd", "optimizer"): Moved(5),
}
"""What kernels read and write: reads inputs, writes outputs, one kernel after the other.

A loss casts to FP32, reads and writes the softmax, and backward fills, turns and casts the gradient (as
`workload.ends` counts). Rotary embedding as the profiler runs it is five kernels either way: two products
of two operands and a sum move three values each, a change of sign of half of them one, joining halves two.
Adam reads weight, gradient and both moments and writes three of them; SGD with momentum has one moment.
"""
SAME_BACKWARD: Final = frozenset({"permute"})
"""Passes whose gradient is such a pass again: rows go back to where they came from."""
COUNTED_DIMS: Final = frozenset({"elems", "rows", "cols", "params"})
MEASURED_ERROR: Final = 0.06
INTERPOLATED_ERROR: Final = 0.10
SHARE_ERROR: Final = 0.20
"""Relative errors, one standard deviation."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MemoryTimes:
    """Seconds of memory-bound passes on one device, by kind and phase where measured."""

    curves: Mapping[tuple[str, str], Surface]
    bandwidth_bytes_per_second: BytesPerSecond
    """What shares are taken of: the datasheet's, or what measured copies and adds imply."""
    provenance: Provenance

    @classmethod
    def of(cls, device: Device, profiles: Sequence[Profile]) -> "MemoryTimes":
        """Return the curves of passes timed as in a running step, and the bandwidth for all others.

        Passes of inference engines and of eager frameworks stand for themselves alone: training runs
        other kernels.
        """
        tables = [table for profile in profiles for table in _training_tables(profile)]
        curves = {key: _curve(rows) for key, rows in _moved(tables).items() if len(rows) >= LEAST_ROWS}
        implied = _implied_bandwidth(curves, profiles)
        return cls(
            curves=curves,
            bandwidth_bytes_per_second=implied or device.memory_bandwidth_bytes_per_second,
            provenance=Provenance.INTERPOLATED if implied else Provenance.DATASHEET,
        )

    def estimate(self, kind: str, moved: Bytes, *, phase: Phase) -> Estimate:
        """Return the time of a pass that reads and writes so many bytes."""
        if moved <= 0:
            return Estimate(seconds=0.0, provenance=Provenance.MEASURED, relative_error=0.0)
        curve = self.curves.get((kind, Phase.FORWARD if kind in SAME_BACKWARD else phase))
        if curve is not None:
            return Estimate(
                seconds=curve(moved), provenance=Provenance.INTERPOLATED, relative_error=INTERPOLATED_ERROR
            )
        rate = SHARES.get(kind, OTHER_SHARE) * self.bandwidth_bytes_per_second
        return Estimate(
            seconds=START_SECONDS + moved / rate, provenance=self.provenance, relative_error=SHARE_ERROR
        )

    def best_bytes_per_second(self) -> BytesPerSecond:
        """Return a rate that no pass exceeds."""
        shares = max(*SHARES.values(), OTHER_SHARE) * self.bandwidth_bytes_per_second
        return max([shares, *map(_best_rate, self.curves.values())])


def _training_tables(profile: Profile) -> list[KernelTable]:
    others = {*profile.facts.get("burst_sources", ()), *profile.facts.get("eager_sources", ())}
    is_other = np.array([source.source in others for source in profile.sources], dtype=bool)
    known = [table for table in profile.kernels if _is_counted(table)]
    kept = [table.rows(np.flatnonzero(~is_other[table.source_index])) for table in known]
    return [table for table in kept if len(table) and table.dtype in ELEMENT_BYTES]


def _is_counted(table: KernelTable) -> bool:
    """Whether it is known what the rows move."""
    has_table = table.operator != "embedding" or {"rows", "cols", "vocabulary"} <= set(table.dims)
    return (table.operator, table.phase) in MOVED and has_table


def _moved(tables: Sequence[KernelTable]) -> dict[tuple[str, str], dict[float, Seconds]]:
    """Return, by kind and phase, the fastest seconds for each number of bytes."""
    fastest: dict[tuple[str, str], dict[float, Seconds]] = {}
    for table in tables:
        key = (table.operator, table.phase)
        counted = [table.column(dim).astype(np.float64) for dim in table.dims if dim in COUNTED_DIMS]
        per_element = MOVED[key].bytes_per_element(ELEMENT_BYTES[table.dtype])
        moved = np.prod(counted, axis=0) * per_element + _filled_bytes(table)
        of_key = fastest.setdefault(key, {})
        for size, seconds in zip(moved.tolist(), table.seconds.tolist(), strict=True):
            of_key[size] = min(seconds, of_key.get(size, seconds))
    return fastest


def _filled_bytes(table: KernelTable) -> Floats | float:
    """Return the bytes of the whole table of gradients that the gradient of a look-up fills with zeros."""
    if (table.operator, table.phase) != ("embedding", "backward"):
        return 0.0
    values = table.column("vocabulary").astype(np.float64) * table.column("cols")
    return np.asarray(values * ELEMENT_BYTES[table.dtype], dtype=np.float64)


def _curve(rows: Mapping[float, Seconds]) -> Surface:
    sizes = sorted(rows)
    return Surface(
        log_axes=(np.log(np.array(sizes)),),
        log_seconds=monotone(np.log(np.array([rows[size] for size in sizes]))),
        growth=(1.0,),
    )


def _best_rate(curve: Surface) -> BytesPerSecond:
    """Return the best rate at the nodes: between them its logarithm is a mean of theirs, beyond it stays."""
    return float(np.exp((curve.log_axes[0] - curve.log_seconds).max()))


def _implied_bandwidth(
    curves: Mapping[tuple[str, str], Surface], profiles: Sequence[Profile]
) -> BytesPerSecond | None:
    """Return the bandwidth of which measured copies or adds would be their usual share."""
    copies = [
        row.bytes_per_second / SHARES["copy"]
        for profile in profiles
        for row in profile.transfers
        if row.operation == "memcpy_d2d"
    ]
    if copies:
        return float(np.median(copies))
    add = curves.get(("add", Phase.FORWARD))
    return None if add is None else _large_rate(add) / SHARES["add"]


def _large_rate(curve: Surface) -> BytesPerSecond:
    """Return the rate of the largest measured size: the one that no cache holds."""
    return float(np.exp(curve.log_axes[0][-1] - curve.log_seconds[-1]))
