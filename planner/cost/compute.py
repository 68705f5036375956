"""Kernel times of one device: matrix products, attention, memory-bound passes, the optimizer."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from planner.cluster import Device
from planner.cost.attention import AttentionTimes
from planner.cost.matrix_products import Measured, ProductTimes, Roofline, datasheet_times, product_times
from planner.cost.memory_passes import MemoryTimes
from planner.errors import MissingMeasurements
from planner.job import Precision
from planner.measurements import KernelTable
from planner.profile import Estimate, Profile, Provenance
from planner.units import Bytes, BytesPerSecond, FlopsPerSecond
from planner.workload.operators import AttentionCore, MatrixProduct, MemoryPass, Phase

EQUAL_RATES: Final[Mapping[str, tuple[str, ...]]] = {
    "bf16": ("bf16", "fp16"),
    "fp16": ("fp16", "bf16"),
    "fp32": ("fp32",),
    "tf32": ("tf32", "fp32_or_tf32"),
    "fp8": ("fp8",),
    "fp8_block": ("fp8_block", "fp8"),
    "mxfp8": ("mxfp8", "fp8_block"),
    "nvfp4": ("nvfp4",),
}
"""Formats whose rows answer for a precision: tensor cores run bf16 and fp16 at one rate."""
PEAK_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "fp8_block": ("fp8",),
    "mxfp8": ("fp8",),
    "nvfp4": ("fp4",),
    "tf32": ("tf32", "fp32"),
    "bf16": ("bf16", "fp16"),
    "fp16": ("fp16", "bf16"),
}
"""Datasheet peaks to try for a precision besides its own name."""
ELEMENT_BYTES: Final[Mapping[str, float]] = {
    "fp32": 4,
    "tf32": 4,
    "fp8": 1,
    "fp8_block": 1,
    "mxfp8": 1,
    "nvfp4": 0.5,
}
"""Bytes of one operand element; two for the others."""
DATASHEET_EFFICIENCY: Final = 0.75
"""Share of the datasheet peak that large products reach on the devices that were measured (0.68 to 0.8)."""
SUSTAINED_OVER_BURST: Final[Mapping[str, float]] = {"ampere": 1.03, "hopper": 1.10, "blackwell": 1.35}
"""Time of a kernel inside a running training step over its time in a short burst on a cool device.

Blackwell: training products take a median 1.35 of the burst times at equal shapes (59 shapes, quartiles
1.20 and 1.50). Ampere and Hopper: the best sustained products found by search reach 271 and 821 TFLOP/s,
where bursts reach 281 and 905 at the 99th percentile.
"""
INPUT_GRADIENT_OVER_FORWARD: Final = 1.00
"""Median over training products of equal size; quartiles 0.97 and 1.05."""
WEIGHT_GRADIENT_OVER_FORWARD: Final = 1.05
"""Median over training products of equal size; quartiles 1.01 and 1.10."""
EXACT_ERROR: Final = 0.03
INTERPOLATED_ERROR: Final = 0.06
OUTSIDE_ERROR: Final = 0.15
DATASHEET_ERROR: Final = 0.30
GRADIENT_ERROR: Final = 0.06
"""Relative errors, one standard deviation: run to run and between software stacks (4 to 7 %)."""


class KernelCosts:
    """What kernels take on one device, from measurements where there are some, else from its datasheet."""

    def __init__(self, device: Device, profiles: Sequence[Profile], precision: Precision) -> None:
        """Take the rows of ``device`` among the profiles, for products of one precision.

        Raises MissingMeasurements when neither rows nor the datasheet give a rate for the precision.
        """
        self._device = device
        self._precision = precision
        own = [profile for profile in profiles if profile.device == device.name]
        self._sustained = sustained_over_burst(device, own)
        self._products = self._product_times([t for profile in own for t in profile.tables("matrix_product")])
        self._attention = AttentionTimes.of(
            own, product_rate=self._large_product_rate(), sustained=self._sustained
        )
        self._memory = MemoryTimes.of(device, own)
        self._cache: dict[tuple[object, Phase], Estimate] = {}

    def matrix_product(self, op: MatrixProduct, *, phase: Phase) -> Estimate:
        """Return the time of one phase of a product; gradients are products of the transposed shapes."""
        key = (op, phase)
        if key not in self._cache:
            self._cache[key] = self._matrix_product(op, phase)
        return self._cache[key]

    def attention(self, op: AttentionCore, *, phase: Phase) -> Estimate:
        """Return the time of the fused attention core, forward or backward."""
        return self._attention.estimate(op, phase=phase)

    def memory_pass(self, op: MemoryPass, *, phase: Phase) -> Estimate:
        """Return the time of a memory-bound pass, forward or backward."""
        moved = op.forward_bytes if phase is Phase.FORWARD else op.backward_bytes
        return self._memory.estimate(op.kind, moved)

    def optimizer_step(self, num_parameters: float, bytes_per_parameter: Bytes) -> Estimate:
        """Return the time of the optimizer over ``num_parameters``, each moving so many bytes."""
        return self._memory.estimate("adam", num_parameters * bytes_per_parameter)

    def best_flops_per_second(self) -> FlopsPerSecond:
        """Return a rate that no matrix product and no attention core of this object exceeds."""
        return max(self._large_product_rate(), self._attention.best_flops_per_second())

    def best_memory_bandwidth(self) -> BytesPerSecond:
        """Return a rate that no memory-bound pass of this object exceeds."""
        return self._memory.best_bytes_per_second()

    def _matrix_product(self, op: MatrixProduct, phase: Phase) -> Estimate:
        shape, factor = _phase_product(op, phase)
        seconds = self._products.seconds(*shape) * factor * self._sustained
        gradient_error = 0.0 if phase is Phase.FORWARD else GRADIENT_ERROR
        provenance, error = self._trust(shape)
        if phase is not Phase.FORWARD and provenance is Provenance.MEASURED:
            provenance = Provenance.INTERPOLATED
        return Estimate(
            seconds=op.count * seconds,
            provenance=provenance,
            relative_error=float(np.sqrt(error**2 + gradient_error**2 + self._sustained_error() ** 2)),
        )

    def _trust(self, shape: tuple[int, int, int]) -> tuple[Provenance, float]:
        if not self._measured:
            return Provenance.DATASHEET, DATASHEET_ERROR
        if shape in self._products.hits:
            return Provenance.MEASURED, EXACT_ERROR
        if self._products.inside(*shape):
            return Provenance.INTERPOLATED, INTERPOLATED_ERROR
        return Provenance.INTERPOLATED, OUTSIDE_ERROR

    def _sustained_error(self) -> float:
        """Half of what the sustained rate differs by: it is one number for all shapes."""
        return (self._sustained - 1.0) / 2.0

    def _large_product_rate(self) -> FlopsPerSecond:
        return self._products.best_flops_per_second

    def _product_times(self, tables: Sequence[KernelTable]) -> ProductTimes:
        answering = EQUAL_RATES[self._precision]
        rows = [t for t in tables if t.dtype in answering and t.phase == "forward" and len(t)]
        peak = self._peak()
        self._measured = bool(rows)
        if not rows:
            if peak is None:
                raise MissingMeasurements(
                    f"no measurement and no datasheet rate of {self._precision} on {self._device.name}",
                    device=self._device.name,
                )
            return datasheet_times(self._roofline(DATASHEET_EFFICIENCY * peak))
        shapes = np.concatenate([np.stack([t.column(dim) for dim in "mnk"], axis=1) for t in rows])
        seconds = np.concatenate([t.seconds for t in rows])
        best = float((2.0 * shapes.prod(axis=1, dtype=np.float64) / seconds).max())
        return product_times(Measured.fastest(shapes, seconds), self._roofline(best))

    def _peak(self) -> FlopsPerSecond | None:
        names = (self._precision.value, *PEAK_OF.get(self._precision, ()))
        peaks = [
            self._device.peak_flops_per_second[n] for n in names if n in self._device.peak_flops_per_second
        ]
        return peaks[0] if peaks else None

    def _roofline(self, rate: FlopsPerSecond) -> Roofline:
        return Roofline(
            flops_per_second=rate,
            bytes_per_second=self._device.memory_bandwidth_bytes_per_second,
            element_bytes=ELEMENT_BYTES.get(self._precision, 2),
        )


def sustained_over_burst(device: Device, profiles: Sequence[Profile]) -> float:
    """Return the factor from the rows' times to those in a running step; 1 where none were bursts."""
    bursts = any(profile.facts.get("burst_sources") for profile in profiles)
    family = device.architecture.split(" ")[0].split("-")[0]
    return SUSTAINED_OVER_BURST.get(family, 1.0) if bursts else 1.0


def _phase_product(op: MatrixProduct, phase: Phase) -> tuple[tuple[int, int, int], float]:
    """Return m, n, k of one phase and its time over a forward product of that shape.

    Forward is [rows, inner] x [inner, columns]; the input gradient [rows, columns] x [columns, inner];
    the weight gradient [columns, rows] x [rows, inner].
    """
    if phase is Phase.FORWARD:
        return (op.rows, op.columns, op.inner), 1.0
    if phase is Phase.INPUT_GRADIENT:
        return (op.rows, op.inner, op.columns), INPUT_GRADIENT_OVER_FORWARD
    if phase is Phase.WEIGHT_GRADIENT:
        return (op.columns, op.inner, op.rows), WEIGHT_GRADIENT_OVER_FORWARD
    raise ValueError(f"a matrix product has no phase {phase!r}")
