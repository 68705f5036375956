"""The decoder layer of a dense transformer: grouped-query self-attention and an MLP."""

from dataclasses import dataclass
from typing import ClassVar

from planner.units import Bytes, Flops
from planner.workload.block import Arrangement, BlockLayer
from planner.workload.layers import DECODER, Cut, PlainLayer, Split
from planner.workload.mlp import Mlp
from planner.workload.operators import Operator
from planner.workload.passes import Norm
from planner.workload.self_attention import SelfAttention
from planner.workload.sizes import (
    require_divisible,
    require_flag,
    require_probability,
    require_size,
    require_size_or_none,
    require_word,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderLayer(PlainLayer):
    """One block by its sizes alone: norm, causal self-attention, residual, norm, MLP, residual.

    ``gated`` MLPs have three matrices (gate, up, down), others two; ``window`` is how many keys a query
    sees, None for all. Refuses sizes that are not whole, not positive or absurd, and key heads that do
    not divide the heads, with ValueError.
    """

    kind: ClassVar[str] = DECODER

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    norm: Norm = Norm.RMS
    gated: bool = True
    rotary: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    arrangement: Arrangement = Arrangement.PRE
    query_key_norm: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        for name in ("hidden", "ffn", "heads", "kv_heads", "head_dim"):
            require_size(name, getattr(self, name))
        require_size_or_none("window", self.window)
        require_word("norm", self.norm, Norm)
        require_word("arrangement", self.arrangement, Arrangement)
        for name in ("attention_dropout", "hidden_dropout"):
            require_probability(name, getattr(self, name))
        for name in ("gated", "rotary", "qkv_bias", "output_bias", "mlp_bias", "query_key_norm"):
            require_flag(name, getattr(self, name))
        require_divisible("heads", self.heads, by_name="kv_heads", by=self.kv_heads)

    @property
    def block(self) -> BlockLayer:
        """The same layer as a block of two branches."""
        attention = SelfAttention(
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            rotary=self.rotary,
            qkv_bias=self.qkv_bias,
            output_bias=self.output_bias,
            query_key_norm=self.query_key_norm,
            window=self.window,
            dropout=self.attention_dropout,
        )
        mlp = Mlp(hidden=self.hidden, ffn=self.ffn, gated=self.gated, bias=self.mlp_bias)
        return BlockLayer(
            branches=(attention, mlp),
            norm=self.norm,
            arrangement=self.arrangement,
            dropout=self.hidden_dropout,
        )

    @property
    def parameters(self) -> int:
        """Parameters of the whole layer."""
        return self.block.parameters

    def local_parameters(self, cut: Cut) -> int:
        """Return one device's share; norms, biases after a sum and surplus key heads are replicated."""
        return self.block.local_parameters(cut)

    @property
    def splits(self) -> tuple[Split, ...]:
        """What the parallel degrees have to divide."""
        return self.block.splits

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return 2 s per weight, and 4 a d per pair that the mask leaves: s^2 / 2 without a window."""
        return self.block.forward_flops_per_sample(sequence_length)

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of its output: the shard with sequence parallel."""
        return cut.activation_bytes(self.hidden)

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        return self.block.operators(cut)
