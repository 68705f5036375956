"""One trial: the plan's model on its ranks, steps that are timed, and what they are held against."""

import json
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, distributed
from torch._C._distributed_c10d import HashStore

from planner.units import Bytes, Seconds
from profiler import host
from profiler.backend import Backend, open_backend
from profiler.processes import GroupShape, Place, Ranks, join, part
from profiler.trial.account import LiveBytes, StepAccount, TimesOperators
from profiler.trial.model import SEED, build_chunk
from profiler.trial.order import TrialOrder
from profiler.trial.parallel import TrialMesh, build_mesh, parallelized
from profiler.trial.passes import OneAfterTheOther, Passes, Samples, build_passes
from profiler.trial.update import Update, optimizer_of

FORMAT: Final = "meshplan-trial/1"
COMPARED_STEPS: Final = 3
"""The first steps: the second one's loss tells whether gradients and update were right as well."""
LOSS_TOLERANCE: Final = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 2e-2}
"""Relative; sums in another order differ by the rounding of the format, times some terms."""
KIBIBYTE: Final = 1024
LIBRARIES: Final = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""Of a group of one rank, by kind of device: FSDP2 gathers on the device, whatever rests on the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSettings:
    """Steps before the clock and on it; whether to run the model in one process as well.

    ``in_turn``: all plans are made ready first, and then each of them runs in turn, so that what disturbs the
    machine for a while disturbs all of them alike: a step that finds caches and memory as it left them, after
    one off the clock that finds them as another plan did.
    """

    warm_up_steps: int = COMPARED_STEPS
    steps: int = 5
    has_reference: bool = True
    in_turn: bool = False
    has_account: bool = True
    """Whether to run two more steps in which every operator is timed by itself."""


@dataclass(kw_only=True, slots=True)
class Trial:
    """A plan made ready on this rank."""

    order: TrialOrder
    mesh: TrialMesh
    passes: Passes
    update: Update
    samples: Samples
    precision: Callable[[], AbstractContextManager[None]]

    def backward(self) -> Tensor | None:
        """Run all passes of a step; return the loss where this rank has the last layer."""
        with self.precision(), self.mesh.loss_context():
            return self.passes.run(self.samples)

    def step(self) -> Tensor | None:
        """Run one whole step."""
        loss = self.backward()
        self.update.step()
        return loss


def run_orders(
    orders: Sequence[TrialOrder],
    settings: TrialSettings,
    kind: str,
    output: Path,
    place: Place,
    meeting: str,
) -> None:
    """Run plans one after the other on the processes that are here; rank 0 writes what was measured."""
    sharing = max(place.processes_per_node, *(_processes_planned(order) for order in orders))
    backend = open_backend(kind, local_rank=place.local_rank, processes_per_node=sharing)
    groups = join(place, meeting=meeting, library=backend.collective_library, shapes=())
    if place.world_size == 1:
        # A device mesh wants a group, of one rank as well.
        library = LIBRARIES[backend.kind]
        distributed.init_process_group(library, store=HashStore(), rank=0, world_size=1)
    ranks = groups[GroupShape(size=place.world_size)]
    try:
        run_all = run_in_turn if settings.in_turn else run_one_by_one
        measured = run_all(orders, settings, backend=backend, ranks=ranks)
    finally:
        part()
    if place.rank == 0:
        output.write_text(json.dumps(measured, indent=1))


def _processes_planned(order: TrialOrder) -> int:
    """Return how many processes a node has where each is a device as planned: a rank has no more cores."""
    return (host.processes_of_device(order.device) if order.device else None) or 1


def run_one_by_one(
    orders: Sequence[TrialOrder], settings: TrialSettings, *, backend: Backend, ranks: Ranks
) -> list[dict[str, Any]]:
    """Run each plan to its end on all ranks; return what was measured, the same on each of them.

    Raises PlanCannotRun for what a trial does not have, on every rank alike.
    """
    return [_measured(_warmed(order, settings, backend, ranks), settings, backend, ranks) for order in orders]


def run_in_turn(
    orders: Sequence[TrialOrder], settings: TrialSettings, *, backend: Backend, ranks: Ranks
) -> list[dict[str, Any]]:
    """Make all plans ready, then time one step of each in turn, round after round; see `run_one_by_one`."""
    warmed = []
    for order in orders:
        before = _allocated_bytes(backend)
        one = _warmed(order, settings, backend, ranks)
        warmed.append(replace(one, held_bytes=_allocated_bytes(backend) - before))
    for _ in range(settings.steps):
        for one in warmed:
            backend.use_precision(one.trial.order.job.precision)
            one.trial.step()
            one.seconds.append(_timed(one.trial, ranks))
    return [_measured(one, settings, backend, ranks) for one in warmed]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Warmed:
    """A plan whose first steps have run, and how long those took that were timed."""

    trial: Trial
    losses: list[Tensor | None]
    losses_alone: list[float] | None
    seconds: list[dict[str, Seconds]]
    held_bytes: Bytes | None = None
    """What it holds between steps on an accelerator that other plans hold something on too; None alone."""


def _warmed(order: TrialOrder, settings: TrialSettings, backend: Backend, ranks: Ranks) -> _Warmed:
    torch.use_deterministic_algorithms(mode=False)
    backend.use_precision(order.job.precision)
    losses_alone = _losses_of_one_process(order, backend, ranks) if settings.has_reference else None
    trial = _prepared(order, backend)
    losses = [trial.step() for _ in range(settings.warm_up_steps)]
    return _Warmed(trial=trial, losses=losses, losses_alone=losses_alone, seconds=[])


def _measured(warmed: _Warmed, settings: TrialSettings, backend: Backend, ranks: Ranks) -> dict[str, Any]:
    """Time the steps that are left, and watch two more; return what was measured."""
    trial, seconds = warmed.trial, warmed.seconds
    backend.use_precision(trial.order.job.precision)
    seconds += [_timed(trial, ranks) for _ in range(settings.steps - len(seconds))]
    account = _account(trial) if settings.has_account else StepAccount().to_document()
    others = 0.0 if warmed.held_bytes is None else _allocated_bytes(backend) - warmed.held_bytes
    memory = _memory(trial, backend, others_bytes=others)
    everyone = ranks.exchange(
        {
            "stage": trial.mesh.stage,
            "losses": [None if loss is None else float(loss) for loss in warmed.losses],
            "seconds": seconds,
            "account": account,
            "memory": memory,
        }
    )
    return {
        "format": FORMAT,
        "device": backend.device_name(),
        "torch": torch.__version__,
        "ranks": len(everyone),
        "warm_up_steps": settings.warm_up_steps,
        "step_time": _step_time(everyone),
        "stages": _stages(everyone),
        "numerics": _numerics(trial.order, everyone, warmed.losses_alone),
    }


def _prepared(order: TrialOrder, backend: Backend) -> Trial:
    mesh = build_mesh(order, device=backend.device)
    own = [order.chunks[number] for number in order.chunks_of(mesh.stage)]
    modules = [
        parallelized(
            build_chunk(placed, device=backend.device, job=order.job),
            placed,
            mesh,
        )
        for placed in own
    ]
    return Trial(
        order=order,
        mesh=mesh,
        passes=build_passes(modules, mesh, device=backend.device),
        update=Update(modules, mesh),
        samples=_share(_samples(order, backend.device), order, replica=mesh.replica),
        precision=partial(_precision, order, backend, is_sharded=mesh.is_sharded),
    )


def _precision(order: TrialOrder, backend: Backend, *, is_sharded: bool) -> AbstractContextManager[None]:
    """Return where products run in fewer bytes than the parameters have; FSDP2 sees to that itself."""
    if order.job.precision == "bf16" and order.job.parameter_dtype == "fp32" and not is_sharded:
        return torch.autocast(backend.kind, torch.bfloat16)
    return nullcontext()


# --- samples and what they should give -----------------------------------------------------------


def _samples(order: TrialOrder, device: torch.device) -> Samples:
    """Return the random samples of a whole step, the same on every rank."""
    generator = torch.Generator().manual_seed(SEED)
    words = order.layers[0].layer
    shape = (order.global_batch_size, order.job.sequence_length + 1)
    tokens = torch.randint(getattr(words, "vocabulary", 2), shape, generator=generator).to(device)
    return Samples(tokens=tokens[:, :-1].contiguous(), targets=tokens[:, 1:].contiguous())


def _share(samples: Samples, order: TrialOrder, *, replica: int) -> Samples:
    parts = order.mesh.data_parallel
    return Samples(tokens=samples.tokens.chunk(parts)[replica], targets=samples.targets.chunk(parts)[replica])


def _losses_of_one_process(order: TrialOrder, backend: Backend, ranks: Ranks) -> list[float] | None:
    """Return the losses of the first steps of the same model without any parallelism; on rank 0 alone."""
    losses = _reference_losses(order, backend) if ranks.members[0] == _rank() else None
    ranks.exchange(0)
    return losses


def _reference_losses(order: TrialOrder, backend: Backend) -> list[float]:
    model = build_chunk(order.layers, device=backend.device, job=order.job)
    optimizer = optimizer_of(order.job.optimizer, model.parameters())
    samples = _samples(order, backend.device)
    num_passes = order.batch.num_micro_batches * order.mesh.data_parallel
    passes = OneAfterTheOther(model=model, num_micro_batches=num_passes)
    losses = []
    for _ in range(COMPARED_STEPS):
        with _precision(order, backend, is_sharded=False):
            losses.append(float(passes.run(samples)))
        optimizer.step()
        optimizer.zero_grad()
    return losses


def _rank() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0


# --- what a step takes ---------------------------------------------------------------------------


def _timed(trial: Trial, ranks: Ranks) -> dict[str, Seconds]:
    """Return how long a step took on this rank, from when all were ready, and its update."""
    ranks.exchange(0)
    _synchronize()
    started = time.perf_counter()
    trial.backward()
    _synchronize()
    passed = time.perf_counter()
    trial.update.step()
    _synchronize()
    ended = time.perf_counter()
    return {"passes": passed - started, "update": ended - passed}


def _account(trial: Trial) -> dict[str, Any]:
    """Return operators and collectives of one more step, each timed by itself, the first time left out."""
    for _ in range(2):
        watcher = TimesOperators(trial.mesh.axes(), synchronize=_synchronize, now=time.perf_counter)
        with watcher:
            trial.backward()
            watcher.is_in_optimizer = True
            trial.update.step()
    return watcher.account.to_document()


def _memory(trial: Trial, backend: Backend, *, others_bytes: Bytes) -> dict[str, Bytes]:
    """Return the bytes of states and of all live tensors in one more step, and of this process.

    An accelerator's allocator counts what other plans hold as well. What rests on the host counts apart. A
    processor is its own host: there gradients, which are made on the device, are taken off its peak, and an
    update on the host does not count among it.
    """
    update = trial.update
    watcher = LiveBytes(update.kept())
    if backend.kind == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with watcher:
        trial.backward()
        gradients = update.gradient_bytes()
        is_own_host = update.on_host and backend.kind == "cpu"
        peak_of_passes = _peak_bytes(watcher, backend) - others_bytes - (gradients if is_own_host else 0.0)
        update.step()
    return {
        "parameters": update.parameter_bytes(),
        "gradients": 0.0 if update.on_host else gradients,
        "optimizer": update.optimizer_bytes(),
        "on_host": update.host_bytes() + (gradients if update.on_host else 0.0),
        "peak_of_passes": peak_of_passes,
        "peak_allocated": peak_of_passes if is_own_host else _peak_bytes(watcher, backend) - others_bytes,
        "process": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIBIBYTE),
    }


def _allocated_bytes(backend: Backend) -> Bytes:
    """Return what torch's allocator holds of an accelerator now; nothing on a processor, which has none."""
    return float(torch.cuda.memory_allocated()) if backend.kind == "cuda" else 0.0


def _peak_bytes(watcher: LiveBytes, backend: Backend) -> Bytes:
    """Return the peak so far: as the allocator of an accelerator tells it, else of the tensors seen."""
    return float(torch.cuda.max_memory_allocated()) if backend.kind == "cuda" else watcher.peak_bytes


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


# --- the report ----------------------------------------------------------------------------------


def _step_time(everyone: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the time of each step on its slowest rank, their median, and the median of its parts."""
    steps = list(zip(*(rank["seconds"] for rank in everyone), strict=True))
    samples = [max(sum(parts.values()) for parts in step) for step in steps]
    return {
        "median_seconds": statistics.median(samples),
        "spread_seconds": max(samples) - min(samples),
        "samples_seconds": samples,
        "passes_seconds": statistics.median(max(parts["passes"] for parts in step) for step in steps),
        "update_seconds": statistics.median(max(parts["update"] for parts in step) for step in steps),
    }


def _stages(everyone: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return memory and account of each stage: of its rank with most memory, and of its first rank."""
    found = []
    for stage in sorted({rank["stage"] for rank in everyone}):
        own = [rank for rank in everyone if rank["stage"] == stage]
        memory = {key: max(rank["memory"][key] for rank in own) for key in own[0]["memory"]}
        found.append({"stage": stage, "memory_bytes": memory, **own[0]["account"]})
    return found


def _numerics(
    order: TrialOrder, everyone: Sequence[dict[str, Any]], losses_alone: list[float] | None
) -> dict[str, Any]:
    """Return the losses of the first steps, those of one process, and whether they agree."""
    last = [rank["losses"] for rank in everyone if rank["losses"] and rank["losses"][0] is not None]
    tolerance = LOSS_TOLERANCE[order.job.precision]
    losses = [statistics.fmean(values) for values in zip(*last, strict=True)]
    if losses_alone is None:
        return {"losses": losses, "losses_of_one_process": None, "tolerance": tolerance, "agree": None}
    error = max(abs(ours - alone) / abs(alone) for ours, alone in zip(losses, losses_alone, strict=False))
    return {
        "losses": losses[:COMPARED_STEPS],
        "losses_of_one_process": losses_alone,
        "relative_error": error,
        "tolerance": tolerance,
        "agree": error <= tolerance,
    }
