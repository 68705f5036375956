"""Kernel times of one device: matrix products, attention, memory-bound passes, the optimizer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from planner.cluster import Device
from planner.cost.attention import LEAST_ROWS, AttentionTimes
from planner.cost.batched_products import BatchedTimes, batched_times
from planner.cost.lenders import (
    borrowed_products,
    datasheet_roofline,
    lenders_of,
    profiles_of,
    slowness_of,
)
from planner.cost.matrix_products import (
    ANCHORED_ERROR,
    LEAST_OWN,
    Borrowed,
    Pace,
    ProductTimes,
    datasheet_times,
    product_times,
)
from planner.cost.memory_passes import MemoryTimes
from planner.cost.product_grid import Roofline
from planner.cost.product_rows import Stack, best_rate_of, best_shape_rate, held_in_step, stacks_of
from planner.errors import MissingMeasurements
from planner.formats import attention_precision, executed_precision, measured_formats
from planner.job import Precision
from planner.profile import Estimate, Profile, Provenance
from planner.units import Bytes, BytesPerSecond, FlopsPerSecond
from planner.workload.operators import AttentionCore, MatrixProduct, MemoryPass, Phase

LARGE_OVER_BEST: Final = 0.85
"""Rate of large products over that of the best shape: V100 0.93, A100 0.92, H100 0.85, B200 0.64."""
LEAST_CORES: Final = 100
"""Fewer attention cores of its own tell less of a device than a relative's sweep at their level."""
DATASHEET_ERROR: Final = 0.25
"""Relative error, one standard deviation, of a rate that no measurement backs."""
FAMILY_PACES: Final[Mapping[str, Pace]] = {
    "ampere": Pace(factor=1.01, relative_error=0.04),
    "hopper": Pace(factor=1.10, relative_error=0.06),
    "blackwell": Pace(factor=1.10, relative_error=0.10),
}
"""Time of a product in a running step over the slower of its burst times, by family of device.

Ampere: fp16 training products on A100 SXM take 1.00 (forward, 32 large shapes) and 0.96 (input
gradient); under 300 W instead of 400 W 1.08. Hopper: layers timed one after the other on H100 1.06,
training products on GH200 1.12 to 1.22. Blackwell: 405B steps on GB200 run products at about 1300 of
the burst's 1450 TFLOP/s; one B200 machine, whose own rows say so, takes 1.33.
"""
FAMILY_HOLDS: Final[Mapping[str, float]] = {"blackwell": 1.05}
"""Time of long products in a step over the same ones in a loop of their own, where power holds them back:
steps of two models on B200 take 1.04 of the sum of their kernels at tp 1, 1.06 at tp 2 and 4."""
OTHER_PACE: Final = Pace(factor=1.10, relative_error=0.10)
GRADIENT_RATIOS: Final[Mapping[Phase, float]] = {Phase.INPUT_GRADIENT: 1.00, Phase.WEIGHT_GRADIENT: 1.05}
"""Time of a gradient over a forward product of its shape: medians of training products on A100 and B200;
quartiles 0.97 to 1.05 and 1.01 to 1.10."""
GRADIENT_ERROR: Final = 0.04


class KernelCosts:
    """What kernels take on one device, from measurements where there are some, else from its datasheet."""

    def __init__(self, device: Device, profiles: Sequence[Profile], precision: Precision) -> None:
        """Take the rows of ``device`` among the profiles, for products of one precision.

        Raises MissingMeasurements when neither rows nor the datasheet give a rate for the precision.
        """
        own, precision = profiles_of(device, profiles), executed_precision(device, precision)
        self._memory = MemoryTimes.of(device, own)
        bandwidth = self._memory.bandwidth_bytes_per_second
        forward = forward_times(device, profiles, precision, bytes_per_second=bandwidth)
        self._products = _all_phases(forward, device, own, precision)
        self._provenance = Provenance.INTERPOLATED if forward.is_measured else Provenance.DATASHEET
        wide = attention_precision(precision)
        if wide is not precision:
            forward = forward_times(device, profiles, wide, bytes_per_second=bandwidth)
        rate, dtypes = forward.best_flops_per_second, measured_formats(device, wide)
        self._batched: BatchedTimes = batched_times(
            own,
            dtypes=dtypes,
            roofline=datasheet_roofline(device, wide, bytes_per_second=bandwidth),
            product_rate=rate,
            product_provenance=self._provenance,
        )
        self._attention = attention_times(device, profiles, wide, product_rate=rate)
        self._answers: dict[tuple[MatrixProduct | AttentionCore | MemoryPass, Phase], Estimate] = {}

    def matrix_product(self, op: MatrixProduct, *, phase: Phase) -> Estimate:
        """Return the time of one phase of a product; gradients are products of the transposed shapes."""
        known = self._answers.get((op, phase))
        if known is None:
            shape = phase_shape(op, phase)
            known = self._product(shape, op.count, phase) if op.has_weights else self._batch(shape, op.count)
            self._answers[op, phase] = known
        return known

    def attention(self, op: AttentionCore, *, phase: Phase) -> Estimate:
        """Return the time of the fused attention core, forward or backward."""
        known = self._answers.get((op, phase))
        if known is None:
            known = self._answers[op, phase] = self._attention.estimate(op, phase=phase)
        return known

    def memory_pass(self, op: MemoryPass, *, phase: Phase) -> Estimate:
        """Return the time of a memory-bound pass, forward or backward."""
        moved = op.forward_bytes if phase is Phase.FORWARD else op.backward_bytes
        return self._memory.estimate(op.kind, moved, phase=phase)

    def optimizer_step(self, num_parameters: float, bytes_per_parameter: Bytes) -> Estimate:
        """Return the time of the optimizer over ``num_parameters``, each moving so many bytes."""
        return self._memory.estimate("adam", num_parameters * bytes_per_parameter, phase=Phase.OPTIMIZER)

    def best_flops_per_second(self) -> FlopsPerSecond:
        """Return a rate that no matrix product and no attention core of this object exceeds."""
        products = [times.best_flops_per_second for times in self._products.values()]
        return max(*products, self._batched.best_flops_per_second, self._attention.best_flops_per_second)

    def best_memory_bandwidth(self) -> BytesPerSecond:
        """Return a rate that no memory-bound pass of this object exceeds."""
        return self._memory.best_bytes_per_second()

    def _product(self, shape: tuple[int, int, int], count: int, phase: Phase) -> Estimate:
        times = self._products[phase]
        exact = shape in times.hits
        gradient_error = 0.0 if exact or phase is Phase.FORWARD else GRADIENT_ERROR
        return Estimate(
            seconds=count * times.seconds(*shape),
            provenance=Provenance.MEASURED if exact else self._provenance,
            relative_error=(times.relative_error(*shape) ** 2 + gradient_error**2) ** 0.5,
        )

    def _batch(self, shape: tuple[int, int, int], count: int) -> Estimate:
        return Estimate(
            seconds=self._batched.seconds(count, *shape),
            provenance=self._batched.provenance,
            relative_error=self._batched.relative_error,
        )


def phase_shape(op: MatrixProduct, phase: Phase) -> tuple[int, int, int]:
    """Return m, n, k of one phase of a product.

    Forward is [rows, inner] x [inner, columns]; the input gradient [rows, columns] x [columns,
    inner]; the weight gradient (or that of the second operand) [columns, rows] x [rows, inner].
    """
    if phase is Phase.FORWARD:
        return op.rows, op.columns, op.inner
    if phase is Phase.INPUT_GRADIENT:
        return op.rows, op.inner, op.columns
    if phase is Phase.WEIGHT_GRADIENT:
        return op.columns, op.inner, op.rows
    raise ValueError(f"a matrix product has no phase {phase!r}")


def forward_times(
    device: Device, profiles: Sequence[Profile], precision: Precision, *, bytes_per_second: BytesPerSecond
) -> ProductTimes:
    """Return the forward times of products: measured ones, a relative's, else the datasheet's.

    Raises MissingMeasurements where there is none of them.
    """
    own = profiles_of(device, profiles)
    stacks = _stacks(device, own, precision, Phase.FORWARD)
    roofline = roofline_of(device, precision, stacks, bytes_per_second=bytes_per_second)

    def borrow(num_rows: int) -> Borrowed | None:
        # Enough rows of its own tell more of a device than another architecture does.
        enough = num_rows >= LEAST_OWN
        return borrowed_products(device, profiles, precision, roofline, only_same_architecture=enough)

    times = product_times(stacks, roofline, family_pace=family_pace(device), borrow=borrow)
    return times or _from_datasheet(device, own, precision, roofline)


def roofline_of(
    device: Device,
    precision: Precision,
    stacks: Sequence[Stack],
    *,
    bytes_per_second: BytesPerSecond,
) -> Roofline:
    """Return the roofline of the datasheet, or of the best rows where that has no rate of the format."""
    roofline = datasheet_roofline(device, precision, bytes_per_second=bytes_per_second)
    if stacks and not roofline.flops_per_second:
        return replace(roofline, flops_per_second=max(map(best_rate_of, stacks)))
    return roofline


def _from_datasheet(
    device: Device, own: Sequence[Profile], precision: Precision, roofline: Roofline
) -> ProductTimes:
    """Return the roofline, at the rate of the best shape where somebody searched for it."""
    best = best_shape_rate(own, dtypes=measured_formats(device, precision))
    if best is not None:
        roofline = replace(roofline, flops_per_second=LARGE_OVER_BEST * best)
    if roofline.flops_per_second > 0:
        return datasheet_times(roofline, relative_error=DATASHEET_ERROR)
    raise MissingMeasurements(
        f"no measurement and no datasheet rate of {precision} on {device.name}", device=device.name
    )


def attention_times(
    device: Device, profiles: Sequence[Profile], precision: Precision, *, product_rate: FlopsPerSecond
) -> AttentionTimes:
    """Return the times of the attention core: swept ones, else the nearest relative's sweep.

    A relative's cores take as much longer here as its peak is higher, or as the device's few own
    rows say.
    """
    own = _attention_of(device, profiles, precision, product_rate=product_rate)
    if own.num_rows >= LEAST_CORES:
        return own
    for lender in lenders_of(device, profiles, precision):
        theirs = _attention_of(lender.device, lender.profiles, precision, product_rate=product_rate)
        if theirs.num_rows >= LEAST_CORES and lender.precision is precision:
            slowness = slowness_of(device, profiles_of(device, profiles), lender, precision)
            is_near = lender.is_same_chip or own.num_rows >= LEAST_ROWS
            lent = theirs.lent(
                slowness,
                relative_error=lender.relative_error,
                provenance=Provenance.INTERPOLATED if is_near else Provenance.DATASHEET,
            )
            return (
                lent
                if own.num_rows < LEAST_ROWS
                else lent.lent(own.over(lent), relative_error=ANCHORED_ERROR, provenance=lent.provenance)
            )
    return own


def _attention_of(
    device: Device, profiles: Sequence[Profile], precision: Precision, *, product_rate: FlopsPerSecond
) -> AttentionTimes:
    return AttentionTimes.of(
        profiles_of(device, profiles),
        dtypes=measured_formats(device, precision),
        product_rate=product_rate,
    )


def _all_phases(
    forward: ProductTimes, device: Device, profiles: Sequence[Profile], precision: Precision
) -> Mapping[Phase, ProductTimes]:
    gradients = {
        phase: forward.of_phase(_stacks(device, profiles, precision, phase), ratio=ratio)
        for phase, ratio in GRADIENT_RATIOS.items()
    }
    return {Phase.FORWARD: forward, **gradients}


def _stacks(
    device: Device, profiles: Sequence[Profile], precision: Precision, phase: Phase
) -> tuple[Stack, ...]:
    """Return what was measured of one phase, at the pace of a step where power holds a device back."""
    stacks = stacks_of(profiles, dtypes=measured_formats(device, precision), phase=phase)
    factor = FAMILY_HOLDS.get(_family(device))
    return stacks if factor is None else tuple(held_in_step(stack, factor=factor) for stack in stacks)


def family_pace(device: Device) -> Pace:
    """Return the pace of a running step over bursts for the family of a device."""
    return FAMILY_PACES.get(_family(device), OTHER_PACE)


def _family(device: Device) -> str:
    return device.architecture.replace("-", " ").split(" ")[0]
