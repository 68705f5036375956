"""Kernel times of one device: matrix products, attention, memory-bound passes, the optimizer."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Final

from planner.cluster import Device
from planner.cost.batched_products import BatchedTimes, batched_times
from planner.cost.corrections import Corrections, Kind
from planner.cost.device_attention import attention_times
from planner.cost.device_products import all_phases, forward_times
from planner.cost.grouped_products import EXACT_ERROR, OVER_SINGLE, OVER_SINGLE_ERROR, GroupedTimes
from planner.cost.lenders import datasheet_roofline, profiles_of
from planner.cost.machine_facts import MachineFacts
from planner.cost.matrix_products import ProductTimes, Shape
from planner.cost.memory_passes import MemoryTimes
from planner.cost.product_rows import shape_of_phase
from planner.cost.profile_set import ProfileSet
from planner.formats import attention_precision, executed_precision, measured_formats
from planner.job import Precision
from planner.profile import Estimate, Profile, Provenance
from planner.units import Bytes, BytesPerSecond, FlopsPerSecond
from planner.workload.operators import AttentionCore, MatrixProduct, MemoryPass, Module, Phase

GRADIENT_ERROR: Final = 0.04
"""Relative error, one standard deviation, that a gradient adds to the forward product of its shape."""

MOST_OPEN: Final = 8
"""Devices, with their measurements in one precision, that stay open: a million rows take seconds to read."""


class KernelCosts:
    """What kernels take on one device, from measurements where there are some, else from its datasheet."""

    def __init__(self, device: Device, profiles: Sequence[Profile], precision: Precision) -> None:
        """Take the rows of ``device`` among the profiles, for products of one precision.

        Raises MissingMeasurements when neither rows nor the datasheet give a rate for the precision.
        """
        own, precision = profiles_of(device, profiles), executed_precision(device, precision)
        self._memory = MemoryTimes.of(device, own)
        self._load_slowdown = MachineFacts.of(device, own).load_slowdown
        self.corrections = Corrections.of(device, own)
        bandwidth = self._memory.bandwidth_bytes_per_second
        forward = forward_times(device, profiles, precision, bytes_per_second=bandwidth)
        self._products = all_phases(forward, device, profiles, precision)
        self._provenance = Provenance.INTERPOLATED if forward.is_measured else Provenance.DATASHEET
        self._grouped = GroupedTimes.of(
            own, dtypes=measured_formats(device, precision), bytes_per_second=bandwidth
        )
        wide = attention_precision(precision)
        self._head_products = self._products
        if wide is not precision:
            forward = forward_times(device, profiles, wide, bytes_per_second=bandwidth)
            self._head_products = all_phases(forward, device, profiles, wide)
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

    @classmethod
    def opened(cls, device: Device, profiles: Sequence[Profile], precision: Precision) -> "KernelCosts":
        """Return new kernels, or as good as new: the last ones opened are kept, and nothing is read again."""
        kernels = _opened(device, ProfileSet.of(profiles), precision)
        return kernels.corrected(kernels.corrections)

    def corrected(self, corrections: Corrections) -> "KernelCosts":
        """Return the same measurements under other corrections."""
        other = copy(self)
        vars(other).update(corrections=corrections, _answers={})
        return other

    def matrix_product(self, op: MatrixProduct, *, phase: Phase) -> Estimate:
        """Return the time of one phase of a product; gradients are products of the transposed shapes."""
        known = self._answers.get((op, phase))
        if known is None:
            if op.repeats > 1:
                known = self._repeated_product(op, phase)
            else:
                loaded = self._single_product(op, phase).scaled(self._load_slowdown)
                known = self.corrections.applied(loaded, Kind.MATRIX_PRODUCT)
            self._answers[op, phase] = known
        return known

    def attention(self, op: AttentionCore, *, phase: Phase) -> Estimate:
        """Return the time of the fused attention core, forward or backward."""
        known = self._answers.get((op, phase))
        if known is None:
            loaded = self._attention.estimate(op, phase=phase).scaled(self._load_slowdown)
            known = self._answers[op, phase] = self.corrections.applied(loaded, Kind.ATTENTION)
        return known

    def memory_pass(self, op: MemoryPass, *, phase: Phase) -> Estimate:
        """Return the time of a memory-bound pass, forward or backward."""
        moved = op.forward_bytes if phase is Phase.FORWARD else op.backward_bytes
        return self.moved(op.kind, moved, phase=phase).scaled(op.repeats)

    def moved(self, kind: str, size: Bytes, *, phase: Phase) -> Estimate:
        """Return the time of one pass of a kind that reads and writes so many bytes."""
        return self.corrections.applied(self._memory.estimate(kind, size, phase=phase), Kind.MEMORY_PASS)

    def optimizer_step(
        self, num_parameters: float, bytes_per_parameter: Bytes, *, kind: str = "adam"
    ) -> Estimate:
        """Return the time of the optimizer over ``num_parameters``, each moving so many bytes.

        A ``kind`` that was not measured runs as Adam does.
        """
        known = kind if (kind, Phase.OPTIMIZER) in self._memory.curves else "adam"
        moved = num_parameters * bytes_per_parameter
        estimate = self._memory.estimate(known, moved, phase=Phase.OPTIMIZER)
        return self.corrections.applied(estimate, Kind.OPTIMIZER)

    def best_flops_per_second(self) -> FlopsPerSecond:
        """Return a rate that no matrix product and no attention core of this object exceeds."""
        single = max(times.best_flops_per_second for times in self._products.values())
        products = max(
            single,
            single / min(OVER_SINGLE.values()),
            self._grouped.best_flops_per_second,
            self._batched.best_flops_per_second,
        )
        best = max(
            products / self.corrections.factor(Kind.MATRIX_PRODUCT),
            self._attention.best_flops_per_second / self.corrections.factor(Kind.ATTENTION),
        )
        return best / self._load_slowdown

    def best_memory_bandwidth(self) -> BytesPerSecond:
        """Return a rate that no memory-bound pass of this object exceeds."""
        least = min(self.corrections.factor(kind) for kind in (Kind.MEMORY_PASS, Kind.OPTIMIZER))
        return self._memory.best_bytes_per_second() / least

    def grouped_product(self, groups: int, m: int, n: int, k: int, *, phase: Phase) -> Estimate:
        """Return the time of ``groups`` products C[m, n] = A[m, k] B[k, n], or of their gradients."""
        op = MatrixProduct(name="grouped", module=Module.MOE, rows=m, columns=n, inner=k, count=groups)
        return self.matrix_product(op, phase=phase)

    def _repeated_product(self, op: MatrixProduct, phase: Phase) -> Estimate:
        """Return products one after the other; the weight gradient of all of them is one product."""
        if phase is Phase.WEIGHT_GRADIENT:
            return self.matrix_product(replace(op, rows=op.rows * op.repeats, repeats=1), phase=phase)
        return self.matrix_product(replace(op, repeats=1), phase=phase).scaled(op.repeats)

    def _single_product(self, op: MatrixProduct, phase: Phase) -> Estimate:
        """Return the time of a product as measured, whatever a loaded device makes of it."""
        shape = phase_shape(op, phase)
        if not op.has_weights:
            return self._batch(shape, op.count)
        if op.count > 1:
            return self._grouped_product(op, phase)
        times = self._head_products if op.module is Module.HEAD else self._products
        return self._product(shape, phase, times[phase])

    def _grouped_product(self, op: MatrixProduct, phase: Phase) -> Estimate:
        shape = (op.count, op.rows, op.columns, op.inner)
        single = self._product(phase_shape(op, phase), phase, self._products[phase])
        if self._grouped.is_measured(shape, phase=phase):
            provenance, error = Provenance.MEASURED, EXACT_ERROR
        else:
            provenance = max(single.provenance, Provenance.INTERPOLATED, key=list(Provenance).index)
            error = (single.relative_error**2 + OVER_SINGLE_ERROR**2) ** 0.5
        return Estimate(
            seconds=self._grouped.seconds(shape, phase=phase, single=single.seconds),
            provenance=provenance,
            relative_error=error,
        )

    def _product(self, shape: Shape, phase: Phase, times: ProductTimes) -> Estimate:
        exact = shape in times.hits
        gradient_error = 0.0 if exact or phase is Phase.FORWARD else GRADIENT_ERROR
        return Estimate(
            seconds=times.seconds(*shape),
            provenance=Provenance.MEASURED if exact else self._provenance,
            relative_error=(times.relative_error(*shape) ** 2 + gradient_error**2) ** 0.5,
        )

    def _batch(self, shape: Shape, count: int) -> Estimate:
        return Estimate(
            seconds=self._batched.seconds(count, *shape),
            provenance=self._batched.provenance,
            relative_error=self._batched.relative_error,
        )


@lru_cache(maxsize=MOST_OPEN)
def _opened(device: Device, profiles: ProfileSet, precision: Precision) -> KernelCosts:
    return KernelCosts(device, profiles.profiles, precision)


def phase_shape(op: MatrixProduct, phase: Phase) -> Shape:
    """Return m, n, k of one phase of a product."""
    return shape_of_phase(op.rows, op.columns, op.inner, phase=phase)
