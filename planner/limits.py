"""What a training framework allows, beyond having an axis, a schedule or a ZeRO stage at all.

The defaults allow everything. `planner.rules` judges layouts by them; `planner.frameworks` says which
framework, in which release, has which.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from planner.offload_limits import EVERYTHING, OffloadLimits
from planner.strategy import DEFAULT_RANK_ORDER, ContextParallelScheme, ZeroStage
from planner.wire import WireChoice
from planner.workload.operators import Module

STATES: Final = ("parameters", "gradients", "optimizer")
"""The states that groups of ranks share."""
SCHEMES: Final = tuple(ContextParallelScheme)
"""The ways to split attention over context parallel."""
LAYER_MODULES: Final[Mapping[str, str]] = {
    module.value: module.value
    for module in (
        Module.CORE_ATTENTION,
        Module.ATTENTION,
        Module.LATENT_PROJECTION,
        Module.MIXER,
        Module.MLP,
        Module.MOE,
        Module.MOE_ACTIVATION,
        Module.SHARED_EXPERTS,
        Module.NORM,
    )
}
"""The modules of a layer whose recomputation can be priced, under their own names."""


class LayerSplit(StrEnum):
    """Who says how many layers a chunk of a pipeline has."""

    ANY = "any"
    """The user, chunk by chunk."""
    ENDS = "ends"
    """The user, for the first and the last stage; those between have equal numbers."""
    EVEN = "even"
    """Nobody: all chunks have equal numbers."""
    OWN = "own"
    """The framework: evenly, or by their weights."""


class ExpertRanks(StrEnum):
    """The ranks of a stage that experts may be spread over."""

    STAGE = "all"
    DATA = "data_parallel"
    SHARDS = "sharded"
    """Those that share the parameters of the layers around the experts, and their tensor parallel."""


class ExpertTensor(StrEnum):
    """The degrees that one expert may be cut into."""

    ANY = "any"
    ONE = "1"
    SAME = "tensor_parallel"
    ONE_OR_SAME = "1 or tensor_parallel"
    SAME_UNLESS_SPREAD = "tensor_parallel, 1 beside expert parallelism"
    SAME_OR_ONE_IF_SPREAD = "tensor_parallel, or 1 beside expert parallelism"

    def degrees(self, *, tensor_parallel: int, expert_parallel: int) -> tuple[int, ...] | None:
        """Return the legal degrees, the usual one first; None for any."""
        is_spread = expert_parallel > 1
        match self:
            case ExpertTensor.ONE:
                return (1,)
            case ExpertTensor.ONE_OR_SAME:
                return (1, tensor_parallel)
            case ExpertTensor.SAME_OR_ONE_IF_SPREAD if is_spread:
                return (1, tensor_parallel)
            case ExpertTensor.SAME_UNLESS_SPREAD if is_spread:
                return (1,)
            case ExpertTensor.ANY:
                return None
        return (tensor_parallel,)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertLimits:
    """What a framework allows of mixtures of experts.

    ``own_layers`` tells frameworks whose layers spread experts from those that leave a model's experts
    as they are where no expert parallelism is asked for: only then do the other limits hold for any
    model with experts.
    """

    exist: bool = True
    spread: bool = True
    own_layers: bool = True
    ranks: ExpertRanks = ExpertRanks.STAGE
    tensor: ExpertTensor = ExpertTensor.ANY
    need_sequence_parallel: bool = False
    """Whether tensor parallelism goes with sequence parallelism only."""
    with_pipeline: bool = True
    zero_stages: tuple[ZeroStage, ...] = tuple(ZeroStage)
    tensor_zero_stages: tuple[ZeroStage, ...] = tuple(ZeroStage)
    """ZeRO stages that go with expert and tensor parallelism together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a framework allows."""

    copies_heads: bool = True
    """Whether heads that are fewer than tensor-parallel ranks are copied to several."""
    cuts_vocabulary_unevenly: bool = True
    """Whether a vocabulary need not come out even, padded or not."""
    layer_split: LayerSplit = LayerSplit.ANY
    drops_layers: bool = False
    """Whether layers that do not come out even are left out without a word."""
    rank_orders: tuple[tuple[str, ...], ...] = (DEFAULT_RANK_ORDER,)
    """Innermost first; none for any."""
    context_parallel_schemes: tuple[ContextParallelScheme, ...] = SCHEMES
    """The framework's default first."""
    windowed_schemes: tuple[ContextParallelScheme, ...] = SCHEMES
    """Those of them that go with attention to a window of the keys."""
    copies_exchanged_heads: bool = True
    """Whether key heads that are fewer than the ranks of an all-to-all are copied to several."""
    splits_unfused_attention: bool = True
    """Whether an all-to-all goes with attention of plain products."""
    always_takes_halves: bool = False
    """Whether a context-parallel rank takes two pieces of the sequence whatever the scheme."""
    context_parallel_alone: bool = False
    """Whether context parallel goes with neither tensor parallel nor a pipeline."""
    shards_sequence_halves: bool = False
    """Whether sequence parallelism cuts each of the two pieces that a context-parallel rank takes."""
    grouped_states: tuple[tuple[str, ...], ...] | None = None
    """The sets of states of which groups of one size, of fewer than all replicas, may share all that is
    sharded so; None for any."""
    shards_over_context: bool = False
    """Whether all context-parallel ranks share what is sharded."""
    shards_modules_apart: bool = False
    """Whether each module may be sharded in its own way."""
    tensor_zero_stages: tuple[ZeroStage, ...] = tuple(ZeroStage)
    """ZeRO stages that go with tensor parallelism."""
    gathers: tuple[WireChoice, ...] = ()
    """What gathers of parameters may move besides parameters as products read them."""
    reductions: tuple[WireChoice, ...] = ()
    """What reductions of gradients may move besides gradients as they are accumulated."""
    keeps_gathered: str | None = None
    """How ZeRO stage 3 is told to leave parameters gathered from forward to backward; None for not at all."""
    unsharded_alone: bool = False
    """Whether replicas that share nothing go with no other axis."""
    spare_stages: int | None = None
    """How many more stages than micro-batches 1F1B runs with; None for any number."""
    micro_batches_fill_stages: bool = False
    """Whether a pipeline's micro-batches are a multiple of its stages, whatever the schedule."""
    interleaved_fill_stages: bool = False
    """The same for interleaved schedules."""
    interleaved_fill_rounds: bool = False
    """Whether interleaved micro-batches are a multiple of their number over that of stages, rounded down."""
    zero_bubble_chunks: int = 1
    """The fewest chunks per stage that zb-h1 runs."""
    repeats_recompute_for_weights: bool = False
    """Whether a recomputed layer runs again for each gradient of weights that is made apart."""
    recompute_modules: Mapping[str, str] = field(default_factory=lambda: LAYER_MODULES)
    """What selective recomputation may name, by the framework's names."""
    experts: ExpertLimits = ExpertLimits()
    offload: OffloadLimits = EVERYTHING

    def module(self, name: str) -> str | None:
        """Return the module that a name means, the framework's or the planner's own; None for none."""
        if name in self.recompute_modules:
            return self.recompute_modules[name]
        return name if name in self.recompute_modules.values() else None
