"""Multi-scale retention (Sun et al., "Retentive Network", 2023): linear attention with a decay per head.

Letters: T tokens of one device, C a chunk, k and v the widths of a head's keys and values. Source of the
products: the paper's chunk-wise recurrent form, which trains in chunks of 512 tokens.
"""

from dataclasses import dataclass
from typing import ClassVar

from planner.units import Flops
from planner.workload.branches import BranchInput, SplitBranch
from planner.workload.layers import Cut, Split
from planner.workload.mixers import (
    chunk_product,
    gated_norm_pass,
    local_bytes,
    num_chunks,
    out_product,
    saved,
    sequence_exchange,
)
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator
from planner.workload.sizes import require_size
from planner.workload.state_space import STATE_BYTES
from planner.workload.tensor_parallel import AXIS, entering_collectives, leaving_collectives


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention(SplitBranch):
    """Products to queries, keys, values and a gate, retention in chunks, a gated norm, one product out.

    Rates of decay are fixed, the norm has no weights, and nothing has a bias.
    """

    label: ClassVar[str] = "mixer"
    module: ClassVar[Module] = Module.MIXER

    hidden: int
    heads: int
    key_dim: int
    value_dim: int
    chunk: int = 512

    def __post_init__(self) -> None:
        for name in ("hidden", "heads", "key_dim", "value_dim", "chunk"):
            require_size(name, getattr(self, name))

    @property
    def has_output_bias(self) -> bool:
        """False: nothing has a bias."""
        return False

    @property
    def splits(self) -> tuple[Split, ...]:
        """Heads."""
        return (Split(name="retention heads", pieces=self.heads, axis=AXIS),)

    def forward_flops(self, sequence_length: int, *, memory_length: int) -> Flops:  # noqa: ARG002 - a Branch
        """Return 2 s per weight, and 4 k v per token and head: write the state and read it."""
        state = 2 * self.heads * self.key_dim * self.value_dim
        return 2.0 * sequence_length * (self.parameters + state)

    def operators(self, cut: Cut, source: BranchInput) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        heads = self.heads // cut.tensor_parallel
        columns, values = heads * 2 * (self.key_dim + self.value_dim), heads * self.value_dim
        return (
            *entering_collectives(product="mixer_in", module=self.module, hidden=self.hidden, cut=cut),
            MatrixProduct(
                name="mixer_in",
                module=self.module,
                rows=cut.local_tokens,
                columns=columns,
                inner=self.hidden,
                saved=source.saved("mixer_in_input", hidden=self.hidden, cut=cut),
            ),
            *sequence_exchange("mixer_in_exchange", columns, cut),
            self._rotary_pass(heads, cut),
            *self._retention_operators(heads, cut),
            gated_norm_pass(values, cut),
            *sequence_exchange("mixer_out_exchange", values, cut),
            out_product(values, hidden=self.hidden, cut=cut),
            *leaving_collectives(product="mixer_out", module=self.module, hidden=self.hidden, cut=cut),
        )

    def _rotary_pass(self, heads: int, cut: Cut) -> MemoryPass:
        """Turn queries and keys by their positions, there and back."""
        width = local_bytes(2 * heads * self.key_dim, cut)
        return MemoryPass(
            name="mixer_rotary",
            module=self.module,
            kind="rotary",
            forward_bytes=2 * width,
            backward_bytes=2 * width,
        )

    def _retention_operators(self, heads: int, cut: Cut) -> tuple[Operator, ...]:
        """Scores within a chunk, what they make of its values, and the state in and out."""
        size, count = self.chunk, num_chunks(self.chunk, cut) * heads
        key, value = self.key_dim, self.value_dim
        return (
            self._retention_pass(heads, count, cut),
            chunk_product("retention_scores", rows=size, columns=size, inner=key, count=count),
            chunk_product("retention_within", rows=size, columns=value, inner=size, count=count),
            chunk_product("retention_state", rows=size, columns=value, inner=key, count=2 * count),
        )

    def _retention_pass(self, heads: int, states: int, cut: Cut) -> MemoryPass:
        """Read queries, keys and values, write the output, write and read every chunk's state.

        Backward makes scores and states again from what was read.
        """
        operands = local_bytes(heads * (2 * self.key_dim + self.value_dim), cut)
        output = local_bytes(heads * self.value_dim, cut)
        state_bytes = STATE_BYTES * states * self.key_dim * self.value_dim
        return MemoryPass(
            name="retention",
            module=self.module,
            kind="scan",
            forward_bytes=operands + output + 2 * state_bytes,
            backward_bytes=2 * (operands + output) + 4 * state_bytes,
            saved=(saved("retention_operands", operands),),
        )

    def _parameters(self, *, tensor_parallel: int) -> int:
        """Return the maps of one device's heads."""
        heads = self.heads // tensor_parallel
        return self.hidden * heads * (2 * self.key_dim + 3 * self.value_dim)
