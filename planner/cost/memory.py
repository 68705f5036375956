"""Bytes that a device holds through a whole step: parameters, gradients, optimizer states, buffers."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from planner.framework import StateWidths
from planner.strategy import Sharding, ZeroStage
from planner.units import GIBIBYTE, Bytes

CONTEXT_BYTES: Final[Bytes] = 0.6 * GIBIBYTE
"""A CUDA context with the libraries' workspaces, as drivers report it on data-centre devices."""
COMMUNICATOR_BYTES: Final[Bytes] = 0.35 * GIBIBYTE
"""Buffers of one NCCL communicator with all channels (342 to 392 MiB reported)."""
FRAGMENTATION_FRACTION: Final = 0.03
"""Reserved over allocated, less one, of a caching allocator in a steady training loop."""
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


def state_bytes(parameters: int, *, widths: StateWidths, sharding: Sharding) -> StateBytes:
    """Return the states of ``parameters`` local parameters: each width over its shard group.

    Rajbhandari et al., "ZeRO" (2020), section 5: stage 1 shards the optimizer's states, 2 the
    gradients too, 3 also the parameters. Sharded parameters that are not resharded after forward
    keep a gathered copy in compute width besides.
    """
    kept_whole = sharding.parameters > 1 and not sharding.reshard_after_forward
    return StateBytes(
        parameters=widths.parameter * _shard(parameters, sharding.parameters)
        + (widths.compute * parameters if kept_whole else 0),
        gradients=widths.held_gradient * _shard(parameters, sharding.gradients),
        optimizer=widths.optimizer * _shard(parameters, sharding.optimizer),
    )


def buffer_bytes(parameters: int, *, widths: StateWidths, sharding: Sharding) -> Bytes:
    """Return the transient bytes that sharding needs around one layer of so many local parameters.

    Gathered compute copies of two layers where parameters are sharded, whole gradients of two
    layers where gradients are.
    """
    gathers = sharding.parameters > 1 and sharding.reshard_after_forward
    gathered = GATHERED_LAYERS * widths.compute * parameters if gathers else 0
    whole = (
        GATHERED_LAYERS * widths.gradient * parameters if sharding.zero_stage >= ZeroStage.GRADIENTS else 0
    )
    return float(gathered + whole)


def framework_bytes(*, num_groups: int) -> Bytes:
    """Return what the process holds besides tensors: context, and communicators of its groups."""
    return CONTEXT_BYTES + COMMUNICATOR_BYTES * num_groups


def _shard(parameters: int, group_size: int) -> int:
    return ceil(parameters / group_size)
