"""Bytes that a device holds through a whole step: parameters, gradients, optimizer states, buffers."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from planner.footprint import PLAIN, Footprint
from planner.framework import FP32_BYTES, StateWidths
from planner.strategy import Sharding, ZeroStage
from planner.units import GIBIBYTE, Bytes

COMMUNICATOR_BYTES: Final[Bytes] = 0.35 * GIBIBYTE
"""Buffers of one NCCL communicator with all channels (342 to 392 MiB reported)."""
GATHERED_LAYERS: Final = 2
"""Layers whose whole parameters are on the device at once under ZeRO-3: the running and the next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateBytes:
    """Bytes of the states of some parameters on one device."""

    parameters: Bytes = 0.0
    gradients: Bytes = 0.0
    optimizer: Bytes = 0.0

    @property
    def total(self) -> Bytes:
        """All states together."""
        return self.parameters + self.gradients + self.optimizer

    def __add__(self, other: "StateBytes") -> "StateBytes":
        """Return the states of both sets of parameters."""
        return StateBytes(
            parameters=self.parameters + other.parameters,
            gradients=self.gradients + other.gradients,
            optimizer=self.optimizer + other.optimizer,
        )


def state_bytes(
    parameters: int,
    *,
    widths: StateWidths,
    sharding: Sharding,
    footprint: Footprint = PLAIN,
    replicas: int = 1,
) -> StateBytes:
    """Return the states of ``parameters`` local parameters: each width over its shard group.

    Rajbhandari et al., "ZeRO" (2020), section 5: stage 1 shards the optimizer's states, 2 the
    gradients too, 3 also the parameters. Sharded parameters that are not resharded after forward
    keep a gathered copy in compute width besides, and so do whole ones that are cast to it.
    ``footprint`` adds its copies of gradients, those of unsharded averaging where there are
    ``replicas`` to average over.
    """
    kept_whole = sharding.parameters == 1 or not sharding.reshard_after_forward
    is_cast = sharding.parameters > 1 or widths.compute < widths.parameter
    return StateBytes(
        parameters=widths.parameter * _shard(parameters, sharding.parameters)
        + (widths.compute * parameters if kept_whole and is_cast else 0),
        gradients=widths.held_gradient * _shard(parameters, sharding.gradients)
        + _gradient_copies(
            parameters, widths=widths, sharding=sharding, footprint=footprint, replicas=replicas
        ),
        optimizer=widths.optimizer * _shard(parameters, sharding.optimizer),
    )


def frozen_bytes(whole_bytes: Bytes, *, sharding: Sharding) -> StateBytes:
    """Return what a device keeps of frozen parameters that take so many bytes before they are sharded."""
    kept_whole = sharding.parameters > 1 and not sharding.reshard_after_forward
    return StateBytes(parameters=whole_bytes / sharding.parameters + (whole_bytes if kept_whole else 0))


def buffer_bytes(
    *, gathered_bytes: Bytes, trained_parameters: int, gradient_bytes: float, sharding: Sharding
) -> Bytes:
    """Return the transient bytes that sharding needs around one layer.

    Gathered copies of two layers of so many bytes where parameters are sharded, whole gradients of two
    layers of so many trained parameters where gradients are, each of ``gradient_bytes``.
    """
    gathers = sharding.parameters > 1 and sharding.reshard_after_forward
    gathered = GATHERED_LAYERS * gathered_bytes if gathers else 0
    shards_gradients = sharding.zero_stage >= ZeroStage.GRADIENTS
    whole = GATHERED_LAYERS * gradient_bytes * trained_parameters if shards_gradients else 0
    return float(gathered + whole)


def framework_bytes(*, num_groups: int, footprint: Footprint = PLAIN) -> Bytes:
    """Return what the process holds besides tensors: context, and communicators of its groups."""
    further = footprint.further_groups if num_groups else 0
    return footprint.context_bytes + COMMUNICATOR_BYTES * (num_groups + further)


def _gradient_copies(
    parameters: int, *, widths: StateWidths, sharding: Sharding, footprint: Footprint, replicas: int
) -> Bytes:
    upcast = footprint.upcast_gradient_bytes if widths.gradient < FP32_BYTES else 0
    is_averaged_whole = replicas > 1 and sharding.optimizer == 1
    buckets = footprint.replica_bucket_bytes * parameters if is_averaged_whole else 0
    copies = upcast + (footprint.shard_copy_bytes if sharding.optimizer > 1 else 0)
    return copies * _shard(parameters, sharding.optimizer) + buckets


def _shard(parameters: int, group_size: int) -> int:
    return ceil(parameters / group_size)
