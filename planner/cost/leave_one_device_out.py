"""How wrong figures of a device are that nobody measured: each measured one told by its relatives alone."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cluster import Device, Level, NodeGroup
from planner.cost.attention import AttentionTimes
from planner.cost.attention_rows import CoreKey, CoreRows, core_rows
from planner.cost.collective import CollectiveCosts, group_shape
from planner.cost.collective_rows import LINK_FACT, MeasuredCollectives
from planner.cost.device_attention import attention_times
from planner.cost.device_products import forward_times
from planner.cost.leave_one_out import LeftOut, distinct_precisions, left_out_errors
from planner.cost.product_rows import stacks_of, together
from planner.errors import MissingMeasurements
from planner.formats import datasheet_peak, measured_formats
from planner.job import Precision
from planner.profile import Profile
from planner.units import Bytes, FlopsPerSecond, Seconds
from planner.workload.operators import AttentionCore, Collective, Module, Phase

Floats = NDArray[np.float64]

MOST_ROWS: Final = 400
"""Rows of one kind that are compared: of more, every second, third, … one."""
LEAST_SIZE: Final = 256
"""Narrower products than training has are not compared."""
LEAST_RATE: Final[FlopsPerSecond] = 1e12


def leave_one_device_out(
    profile: Profile, device: Device, others: Sequence[Profile], *, node: NodeGroup | None = None
) -> tuple[LeftOut, ...]:
    """Return the errors of a profile's figures when only ``others``, of other devices, are known.

    Products and attention are compared at a step's pace, collectives inside a ``node`` as measured;
    without one its devices are taken to share the link that the profile names.
    """
    relatives = [one for one in others if one.device != device.name]
    errors = [
        *_product_errors(profile, device, relatives),
        *_attention_errors(profile, device, relatives),
        *_collective_errors(profile, device, relatives, node),
    ]
    return tuple(left_out_errors(kind, misses) for kind, misses in errors if len(misses))


def _product_errors(
    profile: Profile, device: Device, relatives: Sequence[Profile]
) -> Iterator[tuple[str, Floats]]:
    for precision in distinct_precisions(device):
        stacks = stacks_of([profile], dtypes=measured_formats(device, precision), phase=Phase.FORWARD)
        shapes = _some(together(stacks).shapes)
        if not len(shapes):
            continue
        try:
            lent, own = (
                forward_times(
                    device, known, precision, bytes_per_second=device.memory_bandwidth_bytes_per_second
                )
                for known in (relatives, [profile])
            )
        except MissingMeasurements:
            continue
        misses = [np.log(lent.seconds(m, n, k) / own.seconds(m, n, k)) for m, n, k in shapes.tolist()]
        yield f"matrix_product {precision} forward", np.array(misses)


def _some(shapes: NDArray[np.int64]) -> NDArray[np.int64]:
    wide = shapes[(shapes >= LEAST_SIZE).all(axis=1)]
    return wide[:: max(1, -(-len(wide) // MOST_ROWS))]


def _attention_errors(
    profile: Profile, device: Device, relatives: Sequence[Profile]
) -> Iterator[tuple[str, Floats]]:
    precision = Precision.BF16 if "bf16" in device.peak_flops_per_second else Precision.FP16
    rows_by_key = core_rows([profile], dtypes=measured_formats(device, precision), phase=Phase.FORWARD)
    if not rows_by_key:
        return
    lent, own = (
        attention_times(
            device, known, precision, product_rate=datasheet_peak(device, precision) or LEAST_RATE
        )
        for known in (relatives, [profile])
    )
    for key, rows in rows_by_key.items():
        yield _core_kind(key), _core_misses(key, rows, lent=lent, own=own)


def _core_kind(key: CoreKey) -> str:
    dims, causal = key
    return f"attention forward {'causal' if causal else 'full'}, head dimension {dims // 2}"


def _core_misses(key: CoreKey, rows: CoreRows, *, lent: AttentionTimes, own: AttentionTimes) -> Floats:
    ops = [_core(key, heads, sequence) for heads, sequence in _some_cores(rows)]
    seconds: Callable[[AttentionTimes], Floats] = lambda times: np.array(  # noqa: E731
        [times.estimate(op, phase=Phase.FORWARD).seconds for op in ops]
    )
    return np.asarray(np.log(seconds(lent) / seconds(own)), dtype=np.float64)


def _some_cores(rows: CoreRows) -> list[tuple[int, int]]:
    shapes = [(heads, sequence) for heads, sequence in rows.shapes.tolist()]
    return shapes[:: max(1, -(-len(shapes) // MOST_ROWS))]


def _core(key: CoreKey, heads: int, sequence: int) -> AttentionCore:
    dims, causal = key
    return AttentionCore(
        name="core",
        module=Module.CORE_ATTENTION,
        batch=1,
        query_length=sequence,
        key_length=sequence,
        heads=heads,
        kv_heads=heads,
        head_dim=dims // 2,
        value_dim=dims // 2,
        causal=causal,
    )


def _collective_errors(
    profile: Profile, device: Device, relatives: Sequence[Profile], node: NodeGroup | None
) -> Iterator[tuple[str, Floats]]:
    """Yield the misses of collectives inside a node."""
    measured = MeasuredCollectives(profiles=[profile])
    for operation in Collective:
        group = node or _switched_node(profile, device, operation)
        if group is None:
            continue
        lent = CollectiveCosts(group, relatives)
        fastest: dict[tuple[float, int], float] = {}
        for timing in measured.inside(operation, group.levels):
            key = (timing.payload_bytes, timing.count)
            fastest[key] = min(timing.seconds, fastest.get(key, timing.seconds))
        misses = [
            np.log(_lent_seconds(lent, group, operation, payload=payload, ranks=ranks) / seconds)
            for (payload, ranks), seconds in fastest.items()
            if ranks <= group.num_devices
        ]
        yield f"{operation} inside a node", np.array(misses)


def _lent_seconds(
    lent: CollectiveCosts, group: NodeGroup, operation: Collective, *, payload: Bytes, ranks: int
) -> Seconds:
    return lent.seconds(operation, payload_bytes=payload, shape=group_shape(group, size=ranks)).seconds


def _switched_node(profile: Profile, device: Device, operation: Collective) -> NodeGroup | None:
    """Return a node whose devices share the link of a profile's rows; None where it names none."""
    bandwidth = profile.facts.get(LINK_FACT)
    rows = [
        row
        for row in profile.collectives
        if row.operation == operation and row.world_size == row.ranks_per_node
    ]
    if not bandwidth or not rows:
        return None
    devices = max(row.world_size for row in rows)
    level = Level(
        name=min(str(row.intra_link) for row in rows).split("-", maxsplit=1)[0],
        devices=devices,
        bandwidth_bytes_per_second=float(bandwidth),
        latency_seconds=2e-6,
    )
    return NodeGroup(name="node", num_nodes=1, devices_per_node=devices, device=device, levels=(level,))
