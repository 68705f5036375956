"""What a program has freed and its allocator cannot give away yet: outputs that ranks have to scatter."""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from planner.cost.layer import LayerPasses
from planner.cost.tally import Cause, Tally, total
from planner.footprint import Footprint
from planner.units import Bytes
from planner.workload.tensor_parallel import scatters_an_output

WAITING_SHARE: Final = 0.1
"""Share of passes from which a device that waits for its host counts as slower than its kernels."""


def withheld_bytes(
    classes: Iterable[Sequence[LayerPasses[Tally]]],
    *,
    num_layers: int,
    num_stages: int,
    num_micro_batches: int,
    footprint: Footprint,
) -> Bytes:
    """Return what a device withholds at the most, with layers of these classes.

    A product whose ranks scatter its sums makes them whole first, and frees them. PyTorch gives a block that
    another stream reads back to its pool when the device is past that (``Tensor.record_stream``), while the
    host may have launched as many layers more as fit the queue of launches. No program runs out of memory for
    it: before an allocation fails, the allocator waits for the device and takes all of it back
    (``release_cached_blocks`` in ``CUDACachingAllocator.cpp``).
    """
    if not footprint.queued_layers:
        return 0.0
    warm_up = min(num_stages, num_micro_batches)
    return max(
        min(footprint.queued_layers, _passes_ahead(layers, num_stages, warm_up) * num_layers / num_stages)
        * sum(op.payload_bytes for layer in layers for op in layer.operators if scatters_an_output(op))
        for layers in classes
    )


def _passes_ahead(layers: Sequence[LayerPasses[Tally]], num_stages: int, warm_up: int) -> float:
    """Return how many of a stage's passes a host may launch before it waits for the device.

    Without a pipeline it never waits. The first of p stages launches the p - 1 forward passes of its warm-up,
    and one more, or those of all micro-batches, before it waits for a gradient; a device that runs kernels as
    soon as they are launched, and sends each output in turn, is past two of them by then.
    """
    if num_stages == 1:
        return inf
    passes = total(each for layer in layers for each in (layer.forward, layer.backward))
    is_waiting = passes.causes.get(Cause.OVERHEAD, 0.0) > WAITING_SHARE * passes.seconds
    return max(warm_up - 2 * is_waiting, 0)
