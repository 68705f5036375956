"""How wrong a profile's figures are where they are not measured: every row found from the others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cluster import Device
from planner.cost.attention import core_tables
from planner.cost.attention_rows import core_rows
from planner.cost.batched_products import batched_rows, fitted_times
from planner.cost.collective_rows import MeasuredCollectives
from planner.cost.device_products import GRADIENT_RATIOS, family_pace, roofline_of
from planner.cost.grouped_products import GroupedTimes, grouped_rows
from planner.cost.matrix_products import ProductTimes, product_times
from planner.cost.memory_passes import MemoryTimes
from planner.cost.product_rows import Stack, shape_of_phase, stacks_of
from planner.cost.surface import left_out
from planner.formats import measured_formats
from planner.job import Precision
from planner.profile import Profile
from planner.workload.operators import Collective, Phase

Floats = NDArray[np.float64]

LEAST_SCATTERED: Final = 3
"""Of two scattered rows neither tells the other."""
CORE_FORMATS: Final = ((("bf16", "fp16"), ""), (("fp32",), "fp32 "))
"""Formats of attention cores that are told apart, and what they are called."""
TENTHS: Final = 10
LEAST_BATCHED: Final = 2 * TENTHS


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """Relative errors of one kind of figure when each row is found from the others.

    ``kind`` is an operator with its format and phase, or a collective. ``rows`` counts the rows
    that others enclose: what stands at the edge of a grid is not found from the rest.
    """

    kind: str
    rows: int
    median_abs_error: float
    p90_abs_error: float
    bias: float
    """Median of found over measured, less 1: above zero where figures come out too slow."""


def leave_one_out(profile: Profile, device: Device) -> tuple[LeftOut, ...]:
    """Return the errors of a profile's products, attention cores, memory passes and collectives."""
    errors = [
        *_product_errors(profile, device),
        *_batched_errors(profile, device),
        *_attention_errors(profile),
        *_memory_errors(profile, device),
        *_collective_errors(profile),
    ]
    return tuple(left_out_errors(kind, misses) for kind, misses in errors if len(misses))


def distinct_precisions(device: Device) -> tuple[Precision, ...]:
    """Return the precisions told apart: of bf16 and fp16, which answer for each other, the one it has."""
    other = Precision.FP16 if "bf16" in device.peak_flops_per_second else Precision.BF16
    return tuple(precision for precision in Precision if precision is not other)


def left_out_errors(kind: str, misses: Floats) -> LeftOut:
    """Return the errors of one kind of figure from the logarithms of found over measured."""
    errors = np.abs(np.expm1(misses))
    return LeftOut(
        kind=kind,
        rows=len(errors),
        median_abs_error=float(np.median(errors)),
        p90_abs_error=float(np.quantile(errors, 0.9)),
        bias=float(np.expm1(np.median(misses))),
    )


def _product_errors(profile: Profile, device: Device) -> Iterator[tuple[str, Floats]]:
    for precision in distinct_precisions(device):
        dtypes = measured_formats(device, precision)
        stacks = stacks_of([profile], dtypes=dtypes, phase=Phase.FORWARD)
        if not stacks:
            continue
        bandwidth = device.memory_bandwidth_bytes_per_second
        roofline = roofline_of(device, precision, stacks, bytes_per_second=bandwidth)
        times = product_times(stacks, roofline, family_pace=family_pace(device))
        if times is None:
            continue
        by_phase = {Phase.FORWARD: times}
        grids = [one.misses[~np.isnan(one.misses)] for one in times.grids]
        yield f"matrix_product {precision} forward", np.concatenate([*grids, np.zeros(0)])
        yield f"matrix_product {precision} forward, scattered", _scattered(times, stacks)
        for phase, ratio in GRADIENT_RATIOS.items():
            rows = stacks_of([profile], dtypes=dtypes, phase=phase)
            by_phase[phase] = times.of_phase(rows, ratio=ratio)
            yield f"matrix_product {precision} {phase}", _scattered(by_phase[phase], rows)
        grouped = GroupedTimes.of([profile], dtypes=dtypes, bytes_per_second=bandwidth)
        for phase, of_phase in by_phase.items():
            shapes, seconds = grouped_rows([profile], dtypes=dtypes, phase=phase)
            if len(seconds) >= LEAST_SCATTERED:
                misses = _grouped(grouped, of_phase, shapes, seconds, phase)
                yield f"grouped_matrix_product {precision} {phase}", misses


def _grouped(
    grouped: GroupedTimes, times: ProductTimes, shapes: NDArray[np.int64], seconds: Floats, phase: Phase
) -> Floats:
    """Return the misses of grouped products: many single ones, bounded by the other rows."""
    found = [
        grouped.unbounded(
            (count, m, n, k), phase=phase, single=times.seconds(*shape_of_phase(m, n, k, phase=phase))
        )
        for count, m, n, k in shapes.tolist()
    ]
    between = _between_others(np.array(found), shapes, seconds)
    return np.asarray(np.log(between / seconds), dtype=np.float64)


def _batched_errors(profile: Profile, device: Device) -> Iterator[tuple[str, Floats]]:
    """Yield the misses of batched products: each tenth of them found from the other nine."""
    for precision in distinct_precisions(device):
        shapes, seconds = batched_rows([profile], dtypes=measured_formats(device, precision))
        if len(seconds) < LEAST_BATCHED:
            continue
        misses = np.zeros(len(seconds))
        for tenth in range(TENTHS):
            here = np.arange(len(seconds)) % TENTHS == tenth
            times = fitted_times(shapes[~here], seconds[~here])
            found = [times.seconds(*shape) for shape in shapes[here].tolist()]
            misses[here] = np.log(np.array(found) / seconds[here])
        yield f"batched_matrix_product {precision} forward", misses


def _memory_errors(profile: Profile, device: Device) -> Iterator[tuple[str, Floats]]:
    """Yield the misses of memory-bound passes along the bytes that they move."""
    for (kind, phase), curve in MemoryTimes.of(device, [profile]).curves.items():
        misses = left_out(curve.log_seconds, curve.log_axes) - curve.log_seconds
        yield f"{kind} {phase}", misses[~np.isnan(misses)]


def _scattered(times: ProductTimes, stacks: Sequence[Stack]) -> Floats:
    """Return the misses of rows at a step's pace: the base, bounded by the other rows."""
    sustained = [stack for stack in stacks if not stack.is_burst]
    shapes = np.concatenate([np.zeros((0, 3), dtype=np.int64), *(stack.shapes for stack in sustained)])
    seconds = np.concatenate([np.zeros(0), *(stack.seconds for stack in sustained)])
    if len(seconds) < LEAST_SCATTERED:
        return np.zeros(0)
    base = np.array([times.base(m, n, k) for m, n, k in shapes.tolist()])
    return np.asarray(np.log(_between_others(base, shapes, seconds) / seconds), dtype=np.float64)


def _between_others(estimates: Floats, shapes: NDArray[np.int64], seconds: Floats) -> Floats:
    """Return estimates moved between the bounds that all other rows set; their mean where those cross."""
    least, most = np.zeros(len(shapes)), np.full(len(shapes), np.inf)
    for number, shape in enumerate(shapes):
        # One by one, as each leaves out itself; all pairs of many rows would not fit the memory.
        smaller, larger = (shapes <= shape).all(axis=1), (shapes >= shape).all(axis=1)
        smaller[number] = larger[number] = False
        least[number] = seconds[smaller].max(initial=0.0)
        most[number] = seconds[larger].min(initial=np.inf)
    crossed = least > most
    moved = np.clip(estimates, least, np.where(crossed, np.inf, most))
    return np.where(crossed, np.sqrt(least * np.where(crossed, most, 1.0)), moved)


def _attention_errors(profile: Profile) -> Iterator[tuple[str, Floats]]:
    for phase, (dtypes, word) in product((Phase.FORWARD, Phase.BACKWARD), CORE_FORMATS):
        for (dims, causal), rows in core_rows([profile], dtypes=dtypes, phase=phase).items():
            tables = core_tables({(dims, causal): rows})
            misses = np.concatenate([np.zeros(0), *(table.misses.ravel() for table in tables)])
            mask = "causal" if causal else "full"
            yield f"attention {word}{phase} {mask}, head dimension {dims // 2}", misses[~np.isnan(misses)]


def _collective_errors(profile: Profile) -> Iterator[tuple[str, Floats]]:
    """Yield the misses along the payload, within what one source measured at one group size."""
    measured = MeasuredCollectives(profiles=[profile])
    for operation in Collective:
        series: dict[tuple[str, int], dict[float, float]] = {}
        for timing in measured.inside_node(operation):
            of_series = series.setdefault((timing.stack, timing.count), {})
            of_series[timing.payload_bytes] = timing.seconds
        misses = [_along_payload(of_series) for of_series in series.values()]
        yield f"{operation} inside a node", np.concatenate([np.zeros(0), *misses])


def _along_payload(seconds_by_payload: dict[float, float]) -> Floats:
    payloads = np.array(sorted(seconds_by_payload))
    log_seconds = np.log([seconds_by_payload[payload] for payload in payloads.tolist()])
    misses = left_out(log_seconds, [np.log(payloads)]) - log_seconds
    return np.asarray(misses[~np.isnan(misses)], dtype=np.float64)
