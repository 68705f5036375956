"""What the host takes for torch's own work around kernels: modules, autograd, DTensor, FSDP2, pipelining.

A block of a transformer that is too small for its kernels to matter runs in every way that a plan may ask
for, on all processes at the same time. No link counts: the other ranks of a group answer at once.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, distributed, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from planner.units import Seconds
from planner.workload.operators import Phase
from planner.workload.transformer import DecoderLayer
from profiler import host
from profiler.backend import Backend
from profiler.kernels import kernel_call
from profiler.processes import Ranks
from profiler.shapes import KernelShape
from profiler.timing import Call, HostStopwatch
from profiler.trial.model import Block
from profiler.trial.parallel import split_layer

LAYER: Final = DecoderLayer(hidden=8, ffn=8, heads=2, kv_heads=2, head_dim=4)
LARGER: Final = DecoderLayer(hidden=128, ffn=384, heads=4, kv_heads=4, head_dim=32)
"""One whose kernels take about as long as the host does around them, and its caches from it."""
LARGER_SEQUENCE_LENGTH: Final = 64
PRODUCT: Final = {"rows": 128, "columns": 256, "inner": 256}
"""One of the usual ladder: what it takes now over what it took there tells how the processor has changed."""
SIZES: Final = ("hidden", "ffn", "heads", "kv_heads", "head_dim")
SEQUENCE_LENGTH: Final = 4
LAYERS: Final = 4
"""One after the other; times are of one of them."""
MICRO_BATCHES: Final = 4
PLAIN_FORWARD: Final = ("plain", "forward")
WARM_UP_CALLS: Final = 2
CALLS: Final = 3
"""In a row, so that one finds in the caches what the one before it left there."""
LEAST_ROUNDS: Final = 4
PAIR: Final = 2
"""Ranks of a group that tensors are split over: over one rank torch splits and sends nothing."""
AT_ONCE: Final = "fake"
"""Torch's name of a library whose collectives end when they begin."""

Wrap = Callable[[nn.Module], nn.Module]


Key = tuple[str, str]
"""A way to run the block, and the phase."""


def program_facts(backend: Backend, everyone: Ranks, *, seconds_limit: Seconds) -> dict[str, Any]:
    """Return the block that was run, and a row for each way to run it: seconds of one layer's pass.

    A ``pipeline`` row has a whole micro-batch of so many ``layers``; a ``stages`` row that of two stages on
    this rank, and ``split_stages`` the same where gradients of weights are a pass of their own: torch splits
    none of those of a first stage. ``larger`` rows are of a block whose kernels count, plain; ``update`` has
    one layer's share of the optimizer's step, and a step over a single tensor; ``product`` rows, which only
    processors have, are a product by itself. All of them are run in turn, again and again, as they are to be
    held against each other. What counts is the time of the processor that this process takes, which is not
    another program's matter, nor a device's; how many processes share a core stands beside it. What the
    slowest process takes longer, for which the others wait wherever they meet, is told by the clock.
    """
    with _groups(backend) as groups, torch.device(backend.device):
        pipelines = _pipeline_calls(groups.alone, backend.device)
        calls = {**_model_calls(groups.shared), **pipelines, **_update_calls(), **_product_calls(backend)}
        timed = _in_turn(calls, everyone, seconds_limit=seconds_limit)
        sharing = everyone.exchange(threads_per_core(everyone))
    return {
        "block": {name: getattr(LAYER, name) for name in SIZES},
        "sequence_length": SEQUENCE_LENGTH,
        "layers": LAYERS,
        "larger": {
            "block": {name: getattr(LARGER, name) for name in SIZES},
            "sequence_length": LARGER_SEQUENCE_LENGTH,
        },
        "product": PRODUCT,
        "rows": [
            {"program": program, "phase": phase, "seconds": value}
            for (program, phase), value in _by_layer(timed.seconds).items()
        ],
        "threads_per_core": sharing,
        # A process that waits leaves its core to those that share it.
        "waiting_fraction": timed.waiting_fraction if max(sharing) == 1.0 else 0.0,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Timed:
    """Every call on all processes at once."""

    seconds: Mapping[Key, Seconds]
    """The low quantile of the middle one of all processes."""
    waiting_fraction: float
    """What the slowest one takes longer than all of them on average, call by call."""


def _in_turn(calls: Mapping[Key, Call], everyone: Ranks, *, seconds_limit: Seconds) -> _Timed:
    """Time all calls, round after round."""
    samples: dict[Key, list[Seconds]] = {key: [] for key in calls}
    waits: list[float] = []
    stopwatch = HostStopwatch(now=time.process_time)
    for call in calls.values():
        stopwatch.seconds(call, times=WARM_UP_CALLS)
    spent = 0.0
    while len(samples[PLAIN_FORWARD]) < LEAST_ROUNDS or spent < seconds_limit:
        elapsed = []
        for key, call in calls.items():
            started = time.perf_counter()
            samples[key].append(stopwatch.seconds(call, times=CALLS) / CALLS)
            elapsed.append(time.perf_counter() - started)
        by_process = everyone.exchange(elapsed)
        together = list(zip(*by_process, strict=True))
        waits.append(sum(map(max, together)) / sum(map(statistics.fmean, together)) - 1)
        # The slowest decides for all how often they go round.
        spent += max(map(sum, by_process))
    own = {key: statistics.quantiles(found, n=4)[0] for key, found in samples.items()}
    of_all = everyone.exchange(own)
    return _Timed(
        seconds={key: statistics.median(found[key] for found in of_all) for key in calls},
        waiting_fraction=statistics.median(waits),
    )


def threads_per_core(everyone: Ranks) -> float:
    """Return how many threads of all processes a core of this one has."""
    use = host.core_use(torch.get_num_threads())
    return host.threads_per_core(use, everyone.exchange(use))


def _by_layer(seconds: Mapping[Key, Seconds]) -> dict[Key, Seconds]:
    """Return the time of one layer's passes from that of all layers, forward alone or both ways."""
    rows: dict[Key, Seconds] = {}
    for (program, phase), value in seconds.items():
        match phase:
            case "forward" if program != "product":
                rows[program, phase] = value / LAYERS
            case "both":
                rows[program, "backward"] = max(value - seconds[program, "forward"], 0.0) / LAYERS
            case "micro_batches":
                rows[program, "micro_batch"] = value / MICRO_BATCHES
            case "all":
                rows[program, "layer"] = max(value - seconds[program, "step"], 0.0) / LAYERS
            case _:
                rows[program, phase] = value
    return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class _Groups:
    """Groups of a rank whose others answer at once."""

    alone: distributed.ProcessGroup
    """It has no others."""
    shared: DeviceMesh


@contextmanager
def _groups(backend: Backend) -> Iterator[_Groups]:
    """Meet nobody for a while: groups of this rank alone, and of it and others."""
    is_alone = not distributed.is_initialized()
    if is_alone:
        distributed.init_process_group(AT_ONCE, store=FakeStore(), rank=0, world_size=PAIR)
    try:
        size = distributed.get_world_size()
        alone = _own_of([rank] for rank in range(size))
        shared = _own_of(sorted({rank, (rank + 1) % size}) for rank in range(size))
        mesh = DeviceMesh.from_group(shared, backend.kind, mesh_dim_names=("shared",))
        yield _Groups(alone=alone, shared=mesh)
    finally:
        if is_alone:
            distributed.destroy_process_group()


def _own_of(groups: Iterable[list[int]]) -> distributed.ProcessGroup:
    """Return this rank's one of as many groups as there are ranks, each of which makes all of them."""
    made = [distributed.new_group(ranks, backend=AT_ONCE) for ranks in groups]
    own: distributed.ProcessGroup = made[distributed.get_rank()]
    return own


def _model_calls(mesh: DeviceMesh) -> dict[Key, Call]:
    """Return forward alone and both passes of all layers, in every way to run them."""
    wraps: Mapping[str, Wrap] = {
        PLAIN_FORWARD[0]: lambda block: block,
        "checkpoint": checkpoint_wrapper,
        "checkpoint_core": lambda _: Block(LAYER, recomputes_core=True),
        "tensor_parallel": partial(_split, mesh=mesh, is_sequence_split=False),
        "sequence_parallel": partial(_split, mesh=mesh, is_sequence_split=True),
        "sharded": partial(_sharded, mesh=mesh),
    }
    calls: dict[Key, Call] = {}
    for program, wrap in wraps.items():
        model = _stack(wrap)
        if program == "sharded":
            fully_shard(model, mesh=mesh)
        inputs = torch.randn(1, SEQUENCE_LENGTH, LAYER.hidden)
        calls[program, "forward"] = partial(model, inputs)
        calls[program, "both"] = partial(_there_and_back, model, inputs)
    larger = nn.Sequential(*(Block(LARGER) for _ in range(LAYERS)))
    inputs = torch.randn(1, LARGER_SEQUENCE_LENGTH, LARGER.hidden)
    return calls | {
        ("larger", "forward"): partial(larger, inputs),
        ("larger", "both"): partial(_there_and_back, larger, inputs),
    }


def _pipeline_calls(group: distributed.ProcessGroup, device: torch.device) -> dict[Key, Call]:
    """Return all passes of some micro-batches of one stage and of two, backward whole and split."""

    def stages(number: int) -> list[Any]:
        layers = (_stack(lambda block: block) for _ in range(number))
        return [PipelineStage(own, place, number, device, group=group) for place, own in enumerate(layers)]

    (only,) = stages(1)
    kept: dict[str, Any] = {"n_microbatches": MICRO_BATCHES, "loss_fn": _any_loss, "scale_grads": False}
    schedules = {
        "pipeline": Schedule1F1B(only, **kept),
        "stages": ScheduleInterleaved1F1B(stages(2), **kept),
        "split_stages": ScheduleInterleavedZeroBubble(stages(2), **kept),
    }
    inputs = torch.randn(MICRO_BATCHES, SEQUENCE_LENGTH, LAYER.hidden)
    targets = torch.zeros(MICRO_BATCHES, 1)
    return {
        (name, "micro_batches"): partial(schedule.step, inputs, target=targets, losses=[])
        for name, schedule in schedules.items()
    }


def _update_calls() -> dict[Key, Call]:
    """Return the optimizer's step over a single tensor, and over those of all layers."""
    parameters = list(_stack(lambda block: block).parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    return {
        ("update", "step"): torch.optim.AdamW(parameters[:1], fused=True).step,
        ("update", "all"): torch.optim.AdamW(parameters, fused=True).step,
    }


def _product_calls(backend: Backend) -> dict[Key, Call]:
    """Return the product in each phase, where the host runs it too."""
    if backend.kind != "cpu":
        return {}
    rows, columns, inner = PRODUCT["rows"], PRODUCT["columns"], PRODUCT["inner"]
    shapes = {
        Phase.FORWARD: {"m": rows, "n": columns, "k": inner},
        Phase.INPUT_GRADIENT: {"m": rows, "n": inner, "k": columns},
        Phase.WEIGHT_GRADIENT: {"m": columns, "n": inner, "k": rows},
    }
    return {
        ("product", phase.value): kernel_call(
            KernelShape(operator="matrix_product", dtype="fp32", phase=phase, shape=shape), backend
        )
        for phase, shape in shapes.items()
    }


def _stack(wrap: Wrap) -> nn.Sequential:
    return nn.Sequential(*(wrap(Block(LAYER)) for _ in range(LAYERS)))


def _sharded(module: nn.Module, *, mesh: DeviceMesh) -> nn.Module:
    fully_shard(module, mesh=mesh)
    return module


def _split(block: nn.Module, *, mesh: DeviceMesh, is_sequence_split: bool) -> nn.Module:
    split_layer(block, mesh, is_sequence_split=is_sequence_split)
    return block


def _there_and_back(model: nn.Module, inputs: Tensor) -> None:
    model(inputs).sum().backward()


def _any_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    del targets
    return outputs.sum()
