"""Attention over keys and values that are kept as one narrow latent (DeepSeek-V2, 2024).

Letters: T tokens, h hidden, a heads, n and r the widths of a head's parts without and with rotation, v
that of its values, t tensor parallel. The maps down to the latents are replicated and work on a device's
shard of the tokens; what is gathered for the maps up are the latents, which are narrower than h.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from planner.units import Flops
from planner.workload.attention import LocalAttention, core_operators
from planner.workload.branches import BranchInput, SplitBranch
from planner.workload.layers import Cut, Split
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator, SavedTensor, mask_share
from planner.workload.passes import Norm, norm_pass
from planner.workload.self_attention import output_product
from planner.workload.sizes import require_flag, require_probability, require_size, require_size_or_none
from planner.workload.tensor_parallel import AXIS, entering_collectives, leaving_collectives


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention(SplitBranch):
    """Queries, keys and values by way of latents; ``query_rank`` None maps queries straight from the input.

    ``bias`` is that of the maps down and of the output.
    """

    label: ClassVar[str] = "attention"
    module: ClassVar[Module] = Module.ATTENTION

    hidden: int
    heads: int
    key_value_rank: int
    plain_dim: int
    rotary_dim: int
    value_dim: int
    query_rank: int | None = None
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("hidden", "heads", "key_value_rank", "plain_dim", "rotary_dim", "value_dim"):
            require_size(name, getattr(self, name))
        require_size_or_none("query_rank", self.query_rank)
        require_flag("bias", self.bias)
        require_probability("dropout", self.dropout)

    @property
    def head_dim(self) -> int:
        """Width of a head's queries and keys: n + r."""
        return self.plain_dim + self.rotary_dim

    @property
    def has_output_bias(self) -> bool:
        """Whether the output product has a bias."""
        return self.bias

    @property
    def splits(self) -> tuple[Split, ...]:
        """Heads."""
        return (Split(name="attention heads", pieces=self.heads, axis=AXIS),)

    def forward_flops(self, sequence_length: int, *, memory_length: int) -> Flops:  # noqa: ARG002 - a Branch
        """Return 2 s per weight, and the causal half of 2 s^2 a (n + r + v) for both products of the core."""
        pairs = sequence_length**2 * mask_share(sequence_length, causal=True)
        core = 2.0 * pairs * self.heads * (self.head_dim + self.value_dim)
        return 2.0 * sequence_length * self._weights(tensor_parallel=1) + core

    def operators(self, cut: Cut, source: BranchInput) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        attention = self._local(cut)
        return (
            *self._query_operators(cut, source),
            *self._key_value_operators(cut, source),
            self._assembly_pass(attention),
            *core_operators(attention),
            output_product(attention, hidden=self.hidden, made_by=Module.CORE_ATTENTION),
            *leaving_collectives(product="attention_output", module=self.module, hidden=self.hidden, cut=cut),
        )

    def _query_operators(self, cut: Cut, source: BranchInput) -> Iterator[Operator]:
        """Yield the way to the queries: down, norm and up, or straight from the input."""
        columns = self.heads // cut.tensor_parallel * self.head_dim
        if self.query_rank is None:
            yield from entering_collectives(product="query", module=self.module, hidden=self.hidden, cut=cut)
            yield MatrixProduct(
                name="query",
                module=self.module,
                rows=cut.local_tokens,
                columns=columns,
                inner=self.hidden,
                saved=source.saved("query_input", hidden=self.hidden, cut=cut),
            )
            return
        yield self._down("query_down", self.query_rank, cut, source)
        yield from self._up(
            "query_up", rank=self.query_rank, gathered=self.query_rank, columns=columns, cut=cut
        )

    def _key_value_operators(self, cut: Cut, source: BranchInput) -> Iterator[Operator]:
        """Yield the way to keys and values; the rotated part of the keys is one for all heads."""
        again = BranchInput(made_by=source.made_by, is_saved=True)
        gathered = self.key_value_rank + self.rotary_dim
        columns = self.heads // cut.tensor_parallel * (self.plain_dim + self.value_dim)
        yield self._down("key_value_down", gathered, cut, again)
        yield from self._up(
            "key_value_up", rank=self.key_value_rank, gathered=gathered, columns=columns, cut=cut
        )

    def _down(self, name: str, columns: int, cut: Cut, source: BranchInput) -> MatrixProduct:
        return MatrixProduct(
            name=name,
            module=self.module,
            rows=cut.sharded_tokens,
            columns=columns,
            inner=self.hidden,
            saved=source.saved(f"{name}_input", hidden=self.hidden, cut=cut),
        )

    def _up(self, name: str, *, rank: int, gathered: int, columns: int, cut: Cut) -> Iterator[Operator]:
        """Yield the norm of a latent, what gathers its shards, and the map up to the heads."""
        norm = norm_pass(f"{name}_norm", Norm.RMS, hidden=rank, cut=cut, made_by=self.module)
        yield replace(norm, module=self.module)
        yield from entering_collectives(
            product=name, module=Module.LATENT_PROJECTION, hidden=gathered, cut=cut
        )
        size_bytes = cut.element_bytes * cut.sharded_tokens * rank
        yield MatrixProduct(
            name=name,
            module=Module.LATENT_PROJECTION,
            rows=cut.local_tokens,
            columns=columns,
            inner=rank,
            saved=(SavedTensor(name=f"{name}_input", size_bytes=size_bytes, made_by=self.module),),
        )

    def _assembly_pass(self, attention: LocalAttention) -> MemoryPass:
        """Rotate a part of queries and keys and join the parts: read and write both in either direction."""
        moved_bytes = 2 * (attention.query_bytes + attention.key_bytes)
        return MemoryPass(
            name="rotary",
            module=Module.LATENT_PROJECTION,
            kind="rotary",
            forward_bytes=moved_bytes,
            backward_bytes=moved_bytes,
        )

    def _local(self, cut: Cut) -> LocalAttention:
        heads = self.heads // cut.tensor_parallel
        return LocalAttention(
            heads=heads,
            kv_heads=heads,
            head_dim=self.head_dim,
            value_dim=self.value_dim,
            dropout=self.dropout,
            cut=cut,
            made_by=Module.LATENT_PROJECTION,
        )

    def _down_columns(self) -> int:
        return (self.query_rank or 0) + self.key_value_rank + self.rotary_dim

    def _weights(self, *, tensor_parallel: int) -> int:
        heads = self.heads // tensor_parallel
        query = heads * self.head_dim * (self.query_rank or self.hidden)
        key_value = heads * (self.plain_dim + self.value_dim) * self.key_value_rank
        output = heads * self.value_dim * self.hidden
        return self.hidden * self._down_columns() + query + key_value + output

    def _parameters(self, *, tensor_parallel: int) -> int:
        """Return one device's share; the maps down and their norms are replicated."""
        norms = (self.query_rank or 0) + self.key_value_rank
        biases = self.bias * (self._down_columns() + self.hidden)
        return self._weights(tensor_parallel=tensor_parallel) + norms + biases
