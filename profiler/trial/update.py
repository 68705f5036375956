"""Gradients summed over the replicas and the optimizer's step, on this rank's part of every parameter.

With ZeRO stage 0 all replicas keep all states; with stage 1 a replica keeps the moments of its part of each
parameter and hands the updated part round; from stage 2 on FSDP2 has summed and sharded gradients before.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from planner.strategy import ZeroStage
from planner.units import Bytes
from profiler.trial.experts import ExpertsMlp
from profiler.trial.model import Chunk
from profiler.trial.parallel import DATA, TrialMesh

LEARNING_RATE = 1e-3

# Torch 2.13 renames both and warns of the names that 2.9 has.
_all_gather = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
_reduce_scatter = getattr(distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor)


def optimizer_of(name: str, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Return torch's own optimizer by the planner's name of it: fused, as the profiler measures it.

    The others hold copies of all parameters while they step, and run every one of their passes by itself.
    """
    match name:
        case "sgd":
            return torch.optim.SGD(parameters, lr=LEARNING_RATE, fused=True)
        case "adam":
            return torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)
        case _:
            return torch.optim.AdamW(parameters, lr=LEARNING_RATE, fused=True)


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


@dataclass(kw_only=True, slots=True, eq=False)
class Bucket:
    """The parameters of one layer, whose gradients are summed over the replicas as one.

    Those that are split and those that are not go round separately.
    """

    parts: list[Part]
    group: distributed.ProcessGroup
    replicas: int
    """How many ranks have them."""
    ready: int = 0
    pending: list[distributed.Work] = field(default_factory=list)

    def add(self) -> None:
        """Note that a gradient has all micro-batches; start the sum with the last one of the layer."""
        self.ready += 1
        if self.ready < len(self.parts):
            return
        self.ready = 0
        self._scatter([part for part in self.parts if part.is_split])
        self._sum([part for part in self.parts if not part.is_split])

    def wait(self) -> None:
        """Wait until the sums are there."""
        for work in self.pending:
            work.wait()
        self.pending.clear()

    def hand_round(self) -> None:
        """Give every replica the parts that the others have updated."""
        split = [part for part in self.parts if part.is_split]
        if not split:
            return
        owned = torch.cat([part.owned for part in split])
        gathered = torch.empty(self.replicas * owned.numel(), dtype=owned.dtype, device=owned.device)
        _all_gather(gathered, owned, group=self.group)
        sizes = [part.owned.numel() for part in split]
        for part, columns in zip(split, _pieces(gathered.view(self.replicas, -1), sizes), strict=True):
            part.whole.view(self.replicas, -1).copy_(columns)

    def _scatter(self, parts: list[Part]) -> None:
        """Sum gradients, each replica what it updates of them."""
        if not parts:
            return
        # A row for each replica: what it owns of every parameter, one after the other.
        rows = torch.cat([_row(part).view(self.replicas, -1) for part in parts], dim=1)
        own = torch.empty(rows.shape[1], dtype=rows.dtype, device=rows.device)
        self._started(_reduce_scatter(own, rows.view(-1), group=self.group, async_op=True))
        for part, piece in zip(parts, _pieces(own, [part.owned.numel() for part in parts]), strict=True):
            part.reduced = piece

    def _sum(self, parts: list[Part]) -> None:
        if not parts:
            return
        flat = torch.cat([_row(part) for part in parts])
        self._started(distributed.all_reduce(flat, group=self.group, async_op=True))
        for part, piece in zip(parts, _pieces(flat, [part.whole.numel() for part in parts]), strict=True):
            # What is summed takes the place of the replica's own.
            part.reduced, part.parameter.grad = piece, None

    def _started(self, work: distributed.Work | None) -> None:
        assert work is not None
        self.pending.append(work)


def _row(part: Part) -> Tensor:
    """Return a gradient in one row."""
    gradient = part.gradient()
    assert gradient is not None
    return gradient.reshape(-1)


def _pieces(whole: Tensor, sizes: list[int]) -> list[Tensor]:
    """Return pieces of so many elements each along the last axis."""
    return list(torch.split(whole, sizes, dim=-1))


class Update:
    """Sums gradients over replicas as soon as the last micro-batch has made them, and steps."""

    def __init__(self, modules: Sequence[nn.Module], mesh: TrialMesh) -> None:
        order = mesh.order
        self._replicas = 1 if mesh.is_sharded else order.mesh.data_parallel
        group = mesh.mesh.get_group(DATA) if self._replicas > 1 else None
        self._num_micro_batches = order.batch.num_micro_batches
        # FSDP2 gathers beside the shards: what it keeps through a step comes on top of them.
        self._gathered_times = order.sharding.gradients if mesh.is_sharded and not mesh.frees_gathered else 0
        self.on_host = order.on_host
        is_split = order.sharding.zero_stage is ZeroStage.OPTIMIZER and self._replicas > 1
        own = partial(_part, replica=mesh.replica if is_split else None, replicas=self._replicas)
        layers = [[own(parameter) for parameter in layer] for layer in _parameters_of_layers(modules)]
        self.parts = [part for parts in layers for part in parts]
        self._optimizer = optimizer_of(order.job.optimizer, [part.owned for part in self.parts])
        self._buckets: list[Bucket] = []
        if group is not None:
            self._buckets = [Bucket(parts=parts, group=group, replicas=self._replicas) for parts in layers]
        if mesh.expert_replicas is not None:
            self._buckets = list(_apart(self._buckets, _of_experts(modules), mesh.expert_replicas))
        for bucket in self._buckets:
            for part in bucket.parts:
                part.parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]  # torch's
                    partial(self._after_backward, part, bucket)
                )

    def _after_backward(self, part: Part, bucket: Bucket, parameter: Tensor) -> None:
        """Sum a layer's gradients over replicas once all micro-batches have added to the last of them."""
        del parameter
        part.backward_passes += 1
        if part.backward_passes == self._num_micro_batches:
            part.backward_passes = 0
            bucket.add()

    def step(self) -> None:
        """Wait for the sums, update what this rank owns, hand it round, and let go of all gradients."""
        for bucket in self._buckets:
            bucket.wait()
        for part in self.parts:
            summed = part.gradient() if part.reduced is None else part.reduced
            if summed is not None:
                scaled = summed if self._replicas == 1 else summed.div_(self._replicas)
                part.owned.grad = scaled.view_as(part.owned)
        self._optimizer.step()
        for part in self.parts:
            part.owned.grad, part.reduced, part.parameter.grad = None, None, None
        for bucket in self._buckets:
            bucket.hand_round()

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
        own = [(part.gradient(), part.reduced) for part in self.parts]
        given = (reduced if gradient is None else gradient for gradient, reduced in own)
        return [gradient for gradient in given if gradient is not None]


def _of_experts(modules: Iterable[nn.Module]) -> set[nn.Parameter]:
    experts = (part for module in modules for part in module.modules() if isinstance(part, ExpertsMlp))
    return {parameter for one in experts for parameter in one.own_parameters}


def _apart(
    buckets: Iterable[Bucket], experts: set[nn.Parameter], group: distributed.ProcessGroup
) -> Iterator[Bucket]:
    """Yield buckets with experts in some of their own, whose sums are over the ranks that have the same ones.

    Their gradients have the tokens of all ranks that the experts are spread over.
    """
    for bucket in buckets:
        own = [part for part in bucket.parts if part.parameter in experts]
        rest = [part for part in bucket.parts if part.parameter not in experts]
        if rest:
            yield Bucket(parts=rest, group=bucket.group, replicas=bucket.replicas)
        if own:
            yield Bucket(parts=own, group=group, replicas=group.size())


def _parameters_of_layers(modules: Iterable[nn.Module]) -> list[list[nn.Parameter]]:
    """Return the parameters of each layer, those that several layers share with the first of them."""
    known: set[nn.Parameter] = set()
    layers = []
    for layer in (layer for module in modules for layer in _layers(module)):
        new = [parameter for parameter in layer.parameters() if parameter not in known]
        known.update(new)
        layers.append(new)
    return [layer for layer in layers if layer]


def _layers(module: nn.Module) -> Iterable[nn.Module]:
    return list(module.layers) if isinstance(module, Chunk) else [module]


def _part(parameter: nn.Parameter, *, replica: int | None, replicas: int) -> Part:
    """Return what a rank updates of a parameter: all, or its share where the replicas divide it."""
    local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    whole = local.detach()
    if replica is None or whole.numel() % replicas:
        return Part(parameter=parameter, whole=whole, owned=whole)
    flat = whole.view(-1)
    size = flat.numel() // replicas
    return Part(parameter=parameter, whole=flat, owned=flat[replica * size : (replica + 1) * size])
