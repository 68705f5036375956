"""Forward and backward of all micro-batches of a step: one after the other, or in a pipeline schedule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from torch.distributed.tensor import DTensor
from torch.nn import functional

from planner.strategy import ScheduleName
from profiler.trial.errors import PlanCannotRun
from profiler.trial.order import TrialOrder
from profiler.trial.parallel import PIPELINE, TrialMesh

OF_SEVERAL_CHUNKS: Final[Mapping[ScheduleName, Callable[..., PipelineScheduleMulti]]] = {
    ScheduleName.INTERLEAVED: ScheduleInterleaved1F1B,
    ScheduleName.BREADTH_FIRST: ScheduleLoopedBFS,
    ScheduleName.ZB_H1: ScheduleInterleavedZeroBubble,
    ScheduleName.ZB_V: ScheduleZBVZeroBubble,
    ScheduleName.DUALPIPE_V: ScheduleDualPipeV,
}
"""Torch's schedules that take a list of chunks; that of zb-h1 may hold one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """The samples of one replica for one step: tokens, and the one that follows each."""

    tokens: Tensor
    """BS."""
    targets: Tensor
    """BS."""


class Passes(Protocol):
    """All forward and backward passes of a step on one rank."""

    def run(self, samples: Samples) -> Tensor | None:
        """Add up gradients of the mean loss; return that where this rank has the last layer."""
        ...


def mean_loss(logits_BSV: Tensor, targets_BS: Tensor) -> Tensor:
    """Return the cross entropy of a micro-batch, in FP32."""
    return functional.cross_entropy(logits_BSV.flatten(0, 1).float(), targets_BS.flatten(0, 1))


@dataclass(kw_only=True, slots=True)
class OneAfterTheOther:
    """A model without pipeline."""

    model: nn.Module
    num_micro_batches: int

    def run(self, samples: Samples) -> Tensor:
        """See `Passes.run`."""
        losses = []
        micro_batches = zip(
            samples.tokens.chunk(self.num_micro_batches),
            samples.targets.chunk(self.num_micro_batches),
            strict=True,
        )
        for tokens_BS, targets_BS in micro_batches:
            loss = mean_loss(self.model(tokens_BS), targets_BS) / self.num_micro_batches
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            losses.append(loss.detach())
        return _whole(sum_of(losses))


@dataclass(kw_only=True, slots=True)
class InPipeline:
    """The chunks of one rank in a schedule of torch."""

    schedule: PipelineScheduleSingle | PipelineScheduleMulti
    has_first: bool
    has_last: bool
    losses: list[Tensor] = field(default_factory=list)

    def run(self, samples: Samples) -> Tensor | None:
        """See `Passes.run`."""
        self.losses.clear()
        inputs = (samples.tokens,) if self.has_first else ()
        if self.has_last:
            self.schedule.step(*inputs, target=samples.targets, losses=self.losses)
            return _whole(sum_of([loss.detach() for loss in self.losses]))
        self.schedule.step(*inputs)
        return None


def build_passes(modules: Sequence[nn.Module], mesh: TrialMesh, *, device: torch.device) -> Passes:
    """Return how this rank runs its chunks; PlanCannotRun for a schedule that torch refuses."""
    order = mesh.order
    if order.mesh.pipeline_parallel == 1:
        (model,) = modules
        return OneAfterTheOther(model=model, num_micro_batches=order.batch.num_micro_batches)
    own, num_chunks = order.chunks_of(mesh.stage), len(order.chunks)
    group = mesh.mesh.get_group(PIPELINE)
    stages = [
        PipelineStage(module, number, num_chunks, device, group=group)
        for number, module in zip(own, modules, strict=True)
    ]
    try:
        schedule = _schedule(order, stages)
    except ValueError as error:
        raise PlanCannotRun(f"torch refuses the schedule: {error}") from error
    return InPipeline(schedule=schedule, has_first=0 in own, has_last=num_chunks - 1 in own)


def _schedule(
    order: TrialOrder, stages: list[PipelineStage]
) -> PipelineScheduleSingle | PipelineScheduleMulti:
    micro_batches = order.batch.num_micro_batches

    def share_of_loss(logits_BSV: Tensor, targets_BS: Tensor) -> Tensor:
        return mean_loss(logits_BSV, targets_BS) / micro_batches

    # The losses are scaled here: gradients are summed over replicas before a schedule would scale them.
    several = OF_SEVERAL_CHUNKS.get(order.schedule.name)
    if several is not None:
        return several(list(stages), micro_batches, loss_fn=share_of_loss, scale_grads=False)
    (stage,) = stages
    kind = ScheduleGPipe if order.schedule.name is ScheduleName.GPIPE else Schedule1F1B
    return kind(stage, micro_batches, loss_fn=share_of_loss, scale_grads=False)


def sum_of(losses: Sequence[Tensor]) -> Tensor:
    """Return the sum of the micro-batches' shares of a loss."""
    return torch.stack([_whole(loss) for loss in losses]).sum()


def _whole(loss: Tensor) -> Tensor:
    return loss.full_tensor() if isinstance(loss, DTensor) else loss
