"""Gradients summed over the replicas and the optimizer's step, on this rank's part of every parameter.

With ZeRO stage 0 all replicas keep all states; with stage 1 a replica keeps the moments of its part of each
parameter and hands the updated part round; from stage 2 on FSDP2 has summed and sharded gradients before.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from planner.strategy import ZeroStage
from planner.units import Bytes
from profiler.trial.parallel import DATA, TrialMesh

LEARNING_RATE = 1e-3

# Torch 2.13 renames both and warns of the names that 2.9 has.
_all_gather = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
_reduce_scatter = getattr(distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor)


def optimizer_of(name: str, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Return torch's own optimizer by the planner's name of it."""
    match name:
        case "sgd":
            return torch.optim.SGD(parameters, lr=LEARNING_RATE)
        case "adam":
            return torch.optim.Adam(parameters, lr=LEARNING_RATE, foreach=True)
        case _:
            return torch.optim.AdamW(parameters, lr=LEARNING_RATE, foreach=True)


@dataclass(kw_only=True, slots=True, eq=False)
class Part:
    """One parameter as a rank updates it."""

    parameter: nn.Parameter
    whole: Tensor
    """What this rank holds of it; shares its memory."""
    owned: Tensor
    """What of that this rank updates."""
    backward_passes: int = 0
    reduced: Tensor | None = None
    pending: list[distributed.Work] = field(default_factory=list)

    @property
    def is_split(self) -> bool:
        """Whether other replicas update the rest of it."""
        return self.owned.numel() < self.whole.numel()

    def gradient(self) -> Tensor | None:
        """Return this rank's gradient of it, summed over tensor parallel; None before the first backward."""
        given = self.parameter.grad
        if isinstance(given, DTensor):
            assert isinstance(self.parameter, DTensor)
            return given.redistribute(placements=self.parameter.placements).to_local()
        return given


class Update:
    """Sums gradients over replicas as soon as the last micro-batch has made them, and steps."""

    def __init__(self, modules: Iterable[nn.Module], mesh: TrialMesh) -> None:
        order = mesh.order
        self._replicas = 1 if mesh.is_sharded else order.mesh.data_parallel
        self._group = mesh.mesh.get_group(DATA) if self._replicas > 1 else None
        self._num_micro_batches = order.batch.num_micro_batches
        # FSDP2 gathers beside the shards: what it keeps through a step comes on top of them.
        self._gathered_times = order.sharding.gradients if mesh.is_sharded and not mesh.frees_gathered else 0
        self.on_host = order.on_host
        is_split = order.sharding.zero_stage is ZeroStage.OPTIMIZER and self._replicas > 1
        self.parts = [
            _part(parameter, replica=mesh.replica if is_split else None, replicas=self._replicas)
            for parameter in _parameters(modules)
        ]
        self._optimizer = optimizer_of(order.job.optimizer, [part.owned for part in self.parts])
        if self._group is not None:
            for part in self.parts:
                part.parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]  # torch's
                    partial(self._after_backward, part)
                )

    def _after_backward(self, part: Part, parameter: Tensor) -> None:
        """Start the sum over replicas once all micro-batches have added to a gradient."""
        del parameter
        part.backward_passes += 1
        if part.backward_passes < self._num_micro_batches:
            return
        part.backward_passes = 0
        gradient = part.gradient()
        assert gradient is not None
        gradient = gradient.contiguous()
        if part.is_split:
            part.reduced = torch.empty_like(part.owned, memory_format=torch.contiguous_format)
            work = _reduce_scatter(part.reduced, gradient.view(-1), group=self._group, async_op=True)
        else:
            part.reduced = gradient
            work = distributed.all_reduce(gradient, group=self._group, async_op=True)
        assert work is not None
        part.pending.append(work)

    def step(self) -> None:
        """Wait for the sums, update what this rank owns, hand it round, and let go of all gradients."""
        for part in self.parts:
            for work in part.pending:
                work.wait()
            part.pending.clear()
            summed = part.gradient() if part.reduced is None else part.reduced
            if summed is not None:
                scaled = summed if self._replicas == 1 else summed.div_(self._replicas)
                part.owned.grad = scaled.view_as(part.owned)
        self._optimizer.step()
        for part in self.parts:
            part.owned.grad, part.reduced, part.parameter.grad = None, None, None
            if part.is_split:
                _all_gather(part.whole, part.owned.clone(), group=self._group)

    def parameter_bytes(self) -> Bytes:
        """Return the bytes of this rank's parameters on its device, with those gathered for a whole step."""
        at_rest = 0 if self.on_host else 1
        return self._shard_bytes() * (at_rest + self._gathered_times)

    def gradient_bytes(self) -> Bytes:
        """Return the bytes of this rank's gradients, wherever they rest; none after a step."""
        return float(sum(gradient.nbytes for gradient in self._gradients()))

    def optimizer_bytes(self) -> Bytes:
        """Return the bytes of the optimizer's states on the device; none before the first step."""
        return 0.0 if self.on_host else self._moment_bytes()

    def host_bytes(self) -> Bytes:
        """Return the bytes of parameters and optimizer's states that rest on the host."""
        return self._shard_bytes() + self._moment_bytes() if self.on_host else 0.0

    def kept(self) -> list[Tensor]:
        """Return the tensors that the device keeps from step to step, before anything is gathered."""
        return [] if self.on_host else [part.whole for part in self.parts] + self.states()

    def _shard_bytes(self) -> Bytes:
        return float(sum(part.whole.nbytes for part in self.parts))

    def _moment_bytes(self) -> Bytes:
        return float(sum(state.nbytes for state in self.states()))

    def states(self) -> list[Tensor]:
        """Return the optimizer's states, counters aside."""
        entries = [value for state in self._optimizer.state.values() for value in state.values()]
        return [value for value in entries if isinstance(value, Tensor) and value.dim() > 0]

    def _gradients(self) -> list[Tensor]:
        return [gradient for part in self.parts if (gradient := part.gradient()) is not None]


def _parameters(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    """Return the parameters of some modules, each once."""
    return list(dict.fromkeys(parameter for module in modules for parameter in module.parameters()))


def _part(parameter: nn.Parameter, *, replica: int | None, replicas: int) -> Part:
    """Return what a rank updates of a parameter: all, or its share where the replicas divide it."""
    local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    whole = local.detach()
    if replica is None or whole.numel() % replicas:
        return Part(parameter=parameter, whole=whole, owned=whole)
    flat = whole.view(-1)
    size = flat.numel() // replicas
    return Part(parameter=parameter, whole=flat, owned=flat[replica * size : (replica + 1) * size])
