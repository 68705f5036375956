"""Attention of a decoder to the output of an encoder, as a branch of a block.

Letters: b micro-batch, s the decoder's length, m the encoder's ("memory"), h hidden, a heads, d head width.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from planner.units import Flops
from planner.workload.attention import LocalAttention, core_operators
from planner.workload.branches import BranchInput, SplitBranch
from planner.workload.layers import Cut, Split
from planner.workload.operators import MatrixProduct, Module, Operator
from planner.workload.self_attention import output_product
from planner.workload.sizes import require_flag, require_probability, require_size
from planner.workload.tensor_parallel import AXIS, entering_collectives, leaving_collectives


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossAttention(SplitBranch):
    """Queries of the branch's input, keys and values of the encoder's output, which is as wide.

    The encoder's output is saved once for all layers, by what made it; each layer gathers it again.
    """

    label: ClassVar[str] = "cross_attention"
    module: ClassVar[Module] = Module.ATTENTION

    hidden: int
    heads: int
    head_dim: int
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("hidden", "heads", "head_dim"):
            require_size(name, getattr(self, name))
        require_flag("bias", self.bias)
        require_probability("dropout", self.dropout)

    @property
    def has_output_bias(self) -> bool:
        """Whether the output product has a bias."""
        return self.bias

    @property
    def splits(self) -> tuple[Split, ...]:
        """Heads."""
        return (Split(name="attention heads", pieces=self.heads, axis=AXIS),)

    def forward_flops(self, sequence_length: int, *, memory_length: int) -> Flops:
        """Return 2 per token and weight on either side, and 4 a d for every pair."""
        width = self.heads * self.head_dim
        weights = 2.0 * self.hidden * width * (2 * sequence_length + 2 * memory_length)
        return weights + 4.0 * sequence_length * memory_length * width

    def operators(self, cut: Cut, source: BranchInput) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        memory = replace(cut, sequence_length=cut.memory_length or cut.sequence_length)
        module, hidden = self.module, self.hidden
        attention = self._local(cut, memory)
        return (
            *entering_collectives(product="cross_query", module=module, hidden=hidden, cut=cut),
            MatrixProduct(
                name="cross_query",
                module=module,
                rows=cut.local_tokens,
                columns=attention.heads * self.head_dim,
                inner=hidden,
                saved=source.saved("cross_query_input", hidden=hidden, cut=cut),
            ),
            *entering_collectives(product="cross_key_value", module=module, hidden=hidden, cut=memory),
            MatrixProduct(
                name="cross_key_value",
                module=module,
                rows=memory.local_tokens,
                columns=2 * attention.heads * self.head_dim,
                inner=hidden,
            ),
            *core_operators(attention),
            output_product(attention, hidden=hidden, made_by=Module.CORE_ATTENTION),
            *leaving_collectives(product="cross_attention_output", module=module, hidden=hidden, cut=cut),
        )

    def _local(self, cut: Cut, memory: Cut) -> LocalAttention:
        heads = self.heads // cut.tensor_parallel
        return LocalAttention(
            heads=heads,
            kv_heads=heads,
            head_dim=self.head_dim,
            value_dim=self.head_dim,
            dropout=self.dropout,
            cut=cut,
            causal=False,
            memory_length=memory.sequence_length,
            name="cross_attention",
        )

    def _parameters(self, *, tensor_parallel: int) -> int:
        """Return one device's share; the output's bias is replicated."""
        width = self.heads // tensor_parallel * self.head_dim
        return 4 * self.hidden * width + self.bias * (3 * width + self.hidden)
