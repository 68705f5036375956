"""The gated delta rule (Yang et al., "Gated Delta Networks", 2024): linear attention that corrects its state.

Letters: T tokens of one device, C a chunk, k and v the widths of a head's keys and values, n chunks times
heads. Source of the products: the chunked form of the flash-linear-attention kernels.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from planner.units import Flops
from planner.workload.branches import BranchInput, SplitBranch
from planner.workload.layers import Cut, Split
from planner.workload.mixers import (
    chunk_product,
    convolution_pass,
    gated_norm_pass,
    local_bytes,
    num_chunks,
    out_product,
    saved,
    sequence_exchange,
)
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator
from planner.workload.sizes import require_divisible, require_size
from planner.workload.tensor_parallel import AXIS, entering_collectives, leaving_collectives

CHUNK: Final = 64
"""Tokens of a chunk in the kernels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedDeltaNet(SplitBranch):
    """Products to keys, queries, values and gate, a convolution, the delta rule, a gated norm, the way out.

    Every value head has a decay and a step size of its own; key heads serve several value heads.
    """

    label: ClassVar[str] = "mixer"
    module: ClassVar[Module] = Module.MIXER

    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int = 4

    def __post_init__(self) -> None:
        for name in ("hidden", "key_heads", "value_heads", "key_dim", "value_dim", "kernel"):
            require_size(name, getattr(self, name))
        require_divisible("value_heads", self.value_heads, by_name="key_heads", by=self.key_heads)

    @property
    def has_output_bias(self) -> bool:
        """False: nothing has a bias."""
        return False

    @property
    def splits(self) -> tuple[Split, ...]:
        """Key heads and value heads."""
        return (
            Split(name="linear-attention key heads", pieces=self.key_heads, axis=AXIS),
            Split(name="linear-attention value heads", pieces=self.value_heads, axis=AXIS),
        )

    def forward_flops(self, sequence_length: int, *, memory_length: int) -> Flops:  # noqa: ARG002 - a Branch
        """Return 2 s per weight, and 6 k v per token and head: read, correct and read the state."""
        weights = self.hidden * (self._in_columns(1) + self.value_heads * self.value_dim)
        rule = 3 * self.value_heads * self.key_dim * self.value_dim
        return 2.0 * sequence_length * (weights + rule)

    def operators(self, cut: Cut, source: BranchInput) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        values = self.value_heads // cut.tensor_parallel * self.value_dim
        return (
            *entering_collectives(product="mixer_in", module=self.module, hidden=self.hidden, cut=cut),
            self._in_product(cut, source),
            *sequence_exchange("mixer_in_exchange", self._in_columns(cut.tensor_parallel), cut),
            convolution_pass(self._mixed_channels(cut.tensor_parallel), cut),
            *self._rule_operators(cut),
            gated_norm_pass(values, cut),
            *sequence_exchange("mixer_out_exchange", values, cut),
            out_product(values, hidden=self.hidden, cut=cut),
            *leaving_collectives(product="mixer_out", module=self.module, hidden=self.hidden, cut=cut),
        )

    def _in_product(self, cut: Cut, source: BranchInput) -> MatrixProduct:
        return MatrixProduct(
            name="mixer_in",
            module=self.module,
            rows=cut.local_tokens,
            columns=self._in_columns(cut.tensor_parallel),
            inner=self.hidden,
            saved=source.saved("mixer_in_input", hidden=self.hidden, cut=cut),
        )

    def _rule_operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Keys with keys and queries, the triangular solve, what stays within a chunk, and the state."""
        heads = self.value_heads // cut.tensor_parallel
        count = num_chunks(CHUNK, cut) * heads
        key, value = self.key_dim, self.value_dim
        return (
            self._rule_pass(heads, cut),
            chunk_product("delta_scores", rows=CHUNK, columns=CHUNK, inner=key, count=2 * count),
            chunk_product("delta_solve", rows=CHUNK, columns=key + value, inner=CHUNK, count=count),
            chunk_product("delta_within", rows=CHUNK, columns=value, inner=CHUNK, count=count),
            chunk_product("delta_state", rows=CHUNK, columns=value, inner=key, count=3 * count),
        )

    def _rule_pass(self, heads: int, cut: Cut) -> MemoryPass:
        """Read queries, keys, values and write the output; keep them and the solved triangle for backward."""
        operands = local_bytes(heads * (2 * self.key_dim + self.value_dim), cut)
        triangle, output = local_bytes(heads * CHUNK, cut), local_bytes(heads * self.value_dim, cut)
        return MemoryPass(
            name="delta_rule",
            module=self.module,
            kind="scan",
            forward_bytes=operands + 2 * triangle + output,
            backward_bytes=2 * (operands + triangle + output),
            saved=(saved("delta_operands", operands), saved("delta_triangle", triangle)),
        )

    def _mixed_channels(self, tensor_parallel: int) -> int:
        """Channels of queries, keys and values, which the convolution mixes."""
        keys = self.key_heads * self.key_dim // tensor_parallel
        return 2 * keys + self.value_heads * self.value_dim // tensor_parallel

    def _in_columns(self, tensor_parallel: int) -> int:
        """Return the columns of queries, keys, values, gate, and two numbers per value head."""
        heads = self.value_heads // tensor_parallel
        return self._mixed_channels(tensor_parallel) + heads * self.value_dim + 2 * heads

    def _parameters(self, *, tensor_parallel: int) -> int:
        """Return one device's share; the norm of a head is replicated."""
        heads = self.value_heads // tensor_parallel
        weights = self.hidden * (self._in_columns(tensor_parallel) + heads * self.value_dim)
        convolution = self._mixed_channels(tensor_parallel) * self.kernel
        return weights + convolution + 2 * heads + self.value_dim
