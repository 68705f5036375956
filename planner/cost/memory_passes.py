"""The time of passes bound by memory bandwidth: a fixed start plus bytes over the rate that kernels reach."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.cluster import Device
from planner.measurements import KernelTable
from planner.profile import Estimate, Profile, Provenance
from planner.units import Bytes, BytesPerSecond, Seconds

START_SECONDS: Final = 4e-6
"""The shortest memory-bound kernels of the published tables take 3 to 5 us on the device."""
SHARE_OF_DATASHEET: Final = 0.80
"""Rate of device-to-device copies over the datasheet: 0.78 on A100, 0.75 on H100; large adds reach 0.85."""
MEASURED_ERROR: Final = 0.08
OTHER_KIND_ERROR: Final = 0.15
DATASHEET_ERROR: Final = 0.20
"""Relative errors, one standard deviation."""
ELEMENT_BYTES: Final = {"fp32": 4, "fp16": 2, "bf16": 2}
PASSES: Final[Mapping[str, float]] = {
    "add": 3.0,
    "gated_activation": 3.0,
    "rms_norm": 2.0,
    "layer_norm": 2.0,
    "gelu": 2.0,
    "softmax": 2.0,
    "dropout": 2.5,
    "copy": 2.0,
}
"""Elements read plus written per element of the measured forward kernels (a gated activation reads two)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MemoryTimes:
    """Rates of memory-bound passes on one device, by kind where measured."""

    rates: Mapping[str, BytesPerSecond]
    other_rate: BytesPerSecond
    other_provenance: Provenance

    @classmethod
    def of(cls, device: Device, profiles: Sequence[Profile]) -> "MemoryTimes":
        """Return the rates from measured passes and copies, else a share of the datasheet bandwidth."""
        rates: dict[str, list[float]] = {}
        for profile in profiles:
            for table in profile.kernels:
                if table.phase == "forward" and table.operator in PASSES and table.dtype in ELEMENT_BYTES:
                    rates.setdefault(table.operator, []).extend(_rates(table))
        best = {kind: float(np.median(values)) for kind, values in rates.items() if values}
        copies = [
            row.bytes_per_second for p in profiles for row in p.transfers if row.operation == "memcpy_d2d"
        ]
        if copies:
            return cls(rates=best, other_rate=max(copies), other_provenance=Provenance.INTERPOLATED)
        if best:
            return cls(
                rates=best,
                other_rate=float(np.median(list(best.values()))),
                other_provenance=Provenance.INTERPOLATED,
            )
        rate = SHARE_OF_DATASHEET * device.memory_bandwidth_bytes_per_second
        return cls(rates=best, other_rate=rate, other_provenance=Provenance.DATASHEET)

    def estimate(self, kind: str, moved: Bytes) -> Estimate:
        """Return start + bytes / rate for a pass of one kind."""
        if moved <= 0:
            return Estimate(seconds=0.0, provenance=Provenance.MEASURED, relative_error=0.0)
        known = kind in self.rates
        rate = self.rates.get(kind, self.other_rate)
        datasheet = self.other_provenance is Provenance.DATASHEET
        unknown_error = DATASHEET_ERROR if datasheet else OTHER_KIND_ERROR
        return Estimate(
            seconds=START_SECONDS + moved / rate,
            provenance=Provenance.INTERPOLATED if known else self.other_provenance,
            relative_error=MEASURED_ERROR if known else unknown_error,
        )

    def best_bytes_per_second(self) -> BytesPerSecond:
        """Return a rate that no pass exceeds."""
        return max([self.other_rate, *self.rates.values()])


def _rates(table: KernelTable) -> list[float]:
    """Return bytes over seconds of the rows long enough for the start not to matter."""
    elements = np.prod([table.column(dim) for dim in table.dims if dim in {"elems", "rows", "cols"}], axis=0)
    moved = elements * PASSES[table.operator] * ELEMENT_BYTES[table.dtype]
    seconds: list[Seconds] = table.seconds.tolist()
    return [
        size / (time - START_SECONDS)
        for size, time in zip(moved.tolist(), seconds, strict=True)
        if time > 10 * START_SECONDS
    ]
