"""An extra prediction layer: one more block that learns to predict the token after the next (DeepSeek-V3)."""

from dataclasses import dataclass, replace
from typing import ClassVar

from planner.units import Bytes, Flops
from planner.workload.block import BlockLayer
from planner.workload.embedding import local_vocabulary
from planner.workload.ends import HeadLayer
from planner.workload.layers import PREDICTION, Cut, Split
from planner.workload.operators import CollectivePass, Module, Operator
from planner.workload.passes import norm_pass, replicated_product
from planner.workload.sizes import require_size


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictionLayer:
    """Norms of the last block's output and of the next token's embedding, a map of both, a block, a head.

    Embedding and head are the model's own; it helps in training and is no part of the finished model.
    """

    kind: ClassVar[str] = PREDICTION

    block: BlockLayer
    vocabulary: int

    def __post_init__(self) -> None:
        require_size("vocabulary", self.vocabulary)

    @property
    def hidden(self) -> int:
        """Width of what it reads."""
        return self.block.hidden

    @property
    def parameters(self) -> int:
        """The block, the map from twice the width, and three norms (the third before the head)."""
        return self.block.parameters + self._own_parameters

    def local_parameters(self, cut: Cut) -> int:
        """Return what one device holds: map and norms are replicated."""
        return self.block.local_parameters(cut) + self._own_parameters

    def local_expert_parameters(self, cut: Cut) -> int:
        """Return those of the local parameters that are split over expert parallel."""
        return self.block.local_expert_parameters(cut)

    def tied_local_parameters(self, cut: Cut) -> int:
        """Return the embedding that this device holds as well; the head is beside it."""
        return local_vocabulary(self.vocabulary, cut) * self.hidden

    @property
    def idle_parameters(self) -> int:
        """Parameters that one token leaves unused."""
        return self.block.idle_parameters

    @property
    def buffers(self) -> int:
        """Numbers that the block keeps and nothing trains."""
        return self.block.buffers

    @property
    def splits(self) -> tuple[Split, ...]:
        """What the parallel degrees have to divide."""
        return self.block.splits

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return those of the map, the block and the head."""
        own = 2.0 * sequence_length * 2 * self.hidden**2
        block = self.block.forward_flops_per_sample(sequence_length)
        return own + block + self._head.forward_flops_per_sample(sequence_length)

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of its output: the shard with sequence parallel."""
        return self.block.output_bytes(cut)

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        hidden, norm = self.hidden, self.block.norm
        return (
            norm_pass("mtp_hidden_norm", norm, hidden=hidden, cut=cut, made_by=None),
            norm_pass("mtp_embedding_norm", norm, hidden=hidden, cut=cut, made_by=Module.EMBEDDING),
            replicated_product(
                "mtp_map", Module.MLP, columns=hidden, inner=2 * hidden, cut=cut, made_by=Module.NORM
            ),
            *self.block.operators(cut),
            norm_pass("mtp_norm", norm, hidden=hidden, cut=cut, made_by=Module.RESIDUAL),
            *(_as_prediction(operator) for operator in self._head.operators(cut)),
        )

    @property
    def _head(self) -> HeadLayer:
        return HeadLayer(vocabulary=self.vocabulary, hidden=self.hidden, tied=True)

    @property
    def _own_parameters(self) -> int:
        return 2 * self.hidden**2 + 3 * self.block.norm.parameters_per_channel * self.hidden


def _as_prediction(operator: Operator) -> Operator:
    """Return an operator of the head under a name of its own."""
    if isinstance(operator, CollectivePass) and operator.partner is not None:
        return replace(operator, name=f"mtp_{operator.name}", partner=f"mtp_{operator.partner}")
    return replace(operator, name=f"mtp_{operator.name}")
