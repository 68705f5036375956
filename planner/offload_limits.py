"""What a training framework can keep on the host: which states, in what shares, beside what."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from planner.strategy import HostShares, RecomputeMode, ZeroStage


class HostShare(StrEnum):
    """The shares of something that may be on the host."""

    NONE = "none of"
    WHOLE = "all or none of"
    ANY = "any share of"

    def allows(self, share: float) -> bool:
        """Whether a share (0 to 1) is one of them."""
        return share == 0 or self is HostShare.ANY or (self is HostShare.WHOLE and share == 1)

    @property
    def ends(self) -> tuple[float, ...]:
        """The least and the largest share."""
        return (0.0,) if self is HostShare.NONE else (0.0, 1.0)


class GradientSite(StrEnum):
    """Where gradients rest whose optimizer states are on the host."""

    DEVICE = "stay on the device"
    WITH_OPTIMIZER = "rest where the optimizer states do"
    ANYWHERE = "rest anywhere"


@dataclass(frozen=True, kw_only=True, slots=True)
class OffloadLimits:
    """What a framework can keep on the host. The defaults allow everything.

    ``together`` binds parameters, gradients and optimizer states: all of them, or none. ``unpriced``
    names what else it has, which cannot be priced yet.
    """

    optimizer: HostShare = HostShare.ANY
    zero_stages: tuple[ZeroStage, ...] = tuple(ZeroStage)
    """ZeRO stages beside which optimizer states may be there; with one replica they are all alike."""
    fraction_zero_stages: tuple[ZeroStage, ...] = tuple(ZeroStage)
    """Those beside which a part of them may be."""
    gradients: GradientSite = GradientSite.ANYWHERE
    parameters: HostShare = HostShare.ANY
    parameter_zero_stages: tuple[ZeroStage, ...] = tuple(ZeroStage)
    together: bool = False
    with_pipeline: bool = True
    activations: HostShare = HostShare.ANY
    activations_with_pipeline: bool = True
    activations_beside: tuple[RecomputeMode, ...] = tuple(RecomputeMode)
    """The recomputation beside which activations may be there."""
    activations_alike: bool = False
    """Whether all layers that may keep them there do, or none."""
    keeps_a_layer: bool = False
    """Whether the activations of one layer at least stay on the device."""
    unpriced: str = ""

    @property
    def has_states(self) -> bool:
        """Whether any states can be on the host."""
        return self.optimizer is not HostShare.NONE or self.parameters is not HostShare.NONE

    def shares(
        self, optimizer: float, *, parameters: float | None = None, gradients: float | None = None
    ) -> HostShares:
        """Return shares of all states; those that are not given are as the framework has them."""
        if self.together:
            usual_parameters = usual_gradients = max(optimizer, parameters or 0.0, gradients or 0.0)
            optimizer = usual_parameters
        else:
            usual_parameters = 0.0
            usual_gradients = 0.0 if self.gradients is GradientSite.DEVICE else optimizer
        return HostShares(
            optimizer=optimizer,
            parameters=usual_parameters if parameters is None else parameters,
            gradients=usual_gradients if gradients is None else gradients,
        )


EVERYTHING: Final = OffloadLimits()

NO_OFFLOAD: Final = OffloadLimits(
    optimizer=HostShare.NONE,
    gradients=GradientSite.DEVICE,
    parameters=HostShare.NONE,
    activations=HostShare.NONE,
)

MEGATRON_OFFLOAD: Final = OffloadLimits(
    # --optimizer-cpu-offload --optimizer-offload-fraction, with --use-precision-aware-optimizer, which wants
    # the distributed optimizer; Megatron-FSDP refuses it. Its accumulated gradients stay in their buffer.
    zero_stages=(ZeroStage.OPTIMIZER,),
    gradients=GradientSite.DEVICE,
    parameters=HostShare.NONE,
    # --cpu-offloading-num-layers: whole layers, TransformerConfig refuses the rest.
    activations=HostShare.WHOLE,
    activations_with_pipeline=False,
    activations_beside=(RecomputeMode.NONE,),
    keeps_a_layer=True,
)
MEGATRON_OFFLOAD_BEFORE_0_12: Final = OffloadLimits(
    optimizer=HostShare.NONE,
    gradients=GradientSite.DEVICE,
    parameters=HostShare.NONE,
    activations=HostShare.WHOLE,
    activations_with_pipeline=False,
    activations_beside=(RecomputeMode.NONE,),
    keeps_a_layer=True,
)
"""Releases without HybridDeviceOptimizer."""

DEEPSPEED_OFFLOAD: Final = OffloadLimits(
    # zero_optimization.offload_optimizer; its ratio (Twin-Flow) is read by stage 3 alone.
    zero_stages=(ZeroStage.OPTIMIZER, ZeroStage.GRADIENTS, ZeroStage.PARAMETERS),
    fraction_zero_stages=(ZeroStage.PARAMETERS,),
    gradients=GradientSite.WITH_OPTIMIZER,
    # offload_param is accepted below stage 3 and does nothing there.
    parameters=HostShare.WHOLE,
    parameter_zero_stages=(ZeroStage.PARAMETERS,),
    # activation_checkpointing.cpu_checkpointing: what full recomputation keeps.
    activations=HostShare.WHOLE,
    activations_beside=(RecomputeMode.FULL,),
    activations_alike=True,
    with_pipeline=False,
)

FSDP2_OFFLOAD: Final = OffloadLimits(
    # fully_shard(offload_policy=CPUOffloadPolicy()): sharded parameters, their gradients, and so what an
    # optimizer makes of them.
    optimizer=HostShare.WHOLE,
    zero_stages=(ZeroStage.GRADIENTS, ZeroStage.PARAMETERS),
    gradients=GradientSite.WITH_OPTIMIZER,
    parameters=HostShare.WHOLE,
    parameter_zero_stages=(ZeroStage.GRADIENTS, ZeroStage.PARAMETERS),
    together=True,
    # torchao's and torchtune's OffloadActivations around any block.
    activations=HostShare.WHOLE,
)
