"""Self-attention with grouped key heads, as a branch of a block.

Letters: b micro-batch, s sequence, c context parallel, t tensor parallel, h hidden, a heads, d head
width, e bytes per element; T = b s / c tokens.
"""

from dataclasses import dataclass
from typing import ClassVar

from planner.units import Flops
from planner.workload.attention import LocalAttention, core_operators
from planner.workload.branches import BranchInput, SplitBranch
from planner.workload.layers import Cut, Split
from planner.workload.operators import (
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Saved,
    SavedTensor,
    mask_share,
)
from planner.workload.passes import Norm, upcast_tensors
from planner.workload.sizes import (
    require_divisible,
    require_flag,
    require_probability,
    require_size,
    require_size_or_none,
)
from planner.workload.tensor_parallel import AXIS, entering_collectives, leaving_collectives


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfAttention(SplitBranch):
    """Q, K and V from one product, attention, and the product of its output.

    ``gated`` multiplies the output by a sigmoid of a part of the product as wide as Q. ``query_key_norm``
    normalises every head of Q and K. ``sinks`` is one learned score per head. ``relative_buckets`` counts
    the rows of a learned position bias. ``window`` and ``chunk`` are those of an AttentionCore.
    """

    label: ClassVar[str] = "attention"
    module: ClassVar[Module] = Module.ATTENTION

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    causal: bool = True
    rotary: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    query_key_norm: bool = False
    gated: bool = False
    sinks: bool = False
    relative_buckets: int = 0
    window: int | None = None
    chunk: int | None = None
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("hidden", "heads", "kv_heads", "head_dim"):
            require_size(name, getattr(self, name))
        for name in ("causal", "rotary", "qkv_bias", "output_bias", "query_key_norm", "gated", "sinks"):
            require_flag(name, getattr(self, name))
        require_size("relative_buckets", self.relative_buckets, smallest=0)
        for name in ("window", "chunk"):
            require_size_or_none(name, getattr(self, name))
        require_probability("dropout", self.dropout)
        require_divisible("heads", self.heads, by_name="kv_heads", by=self.kv_heads)

    @property
    def has_output_bias(self) -> bool:
        """Whether the output product has a bias."""
        return self.output_bias

    @property
    def splits(self) -> tuple[Split, ...]:
        """Heads and key heads, which may be replicated."""
        return (
            Split(name="attention heads", pieces=self.heads, axis=AXIS),
            Split(name="key/value heads", pieces=self.kv_heads, axis=AXIS, replicate=True),
        )

    def forward_flops(self, sequence_length: int, *, memory_length: int) -> Flops:  # noqa: ARG002 - a Branch
        """Return 2 s per weight, and 4 a d per pair that the mask leaves: s^2 / 2 where it is causal."""
        width = self.heads * self.head_dim
        share = mask_share(sequence_length, causal=self.causal, window=self.window, chunk=self.chunk)
        weights = self.hidden * (self._qkv_columns(1) + width)
        return 2.0 * sequence_length * weights + 4.0 * sequence_length**2 * share * width

    def operators(self, cut: Cut, source: BranchInput) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        attention = self._local(cut)
        return (
            *entering_collectives(product="qkv", module=self.module, hidden=self.hidden, cut=cut),
            self._qkv_product(cut, source),
            *self._norm_pass(attention),
            *self._rotary_pass(attention),
            *core_operators(attention),
            *self._gate_pass(attention),
            self._output_product(attention),
            *leaving_collectives(product="attention_output", module=self.module, hidden=self.hidden, cut=cut),
        )

    def _qkv_product(self, cut: Cut, source: BranchInput) -> MatrixProduct:
        return MatrixProduct(
            name="qkv",
            module=self.module,
            rows=cut.local_tokens,
            columns=self._qkv_columns(cut.tensor_parallel),
            inner=self.hidden,
            saved=source.saved("qkv_input", hidden=self.hidden, cut=cut),
        )

    def _norm_pass(self, attention: LocalAttention) -> tuple[MemoryPass, ...]:
        """Normalise each head of Q and K: forward moves them twice, backward three times."""
        if not self.query_key_norm:
            return ()
        width = attention.query_bytes + attention.key_bytes
        return (
            MemoryPass(
                name="query_key_norm",
                module=self.module,
                kind="rms_norm",
                forward_bytes=2 * width,
                backward_bytes=3 * width,
                saved=(
                    SavedTensor(name="query_key_norm_input", size_bytes=width, made_by=self.module),
                    *self._upcast_tensors(attention),
                ),
            ),
        )

    def _upcast_tensors(self, attention: LocalAttention) -> Saved:
        elements = int(attention.query_bytes + attention.key_bytes) // attention.cut.element_bytes
        return upcast_tensors(
            "query_key_norm", Norm.RMS, elements=elements, cut=attention.cut, made_by=self.module
        )

    def _rotary_pass(self, attention: LocalAttention) -> tuple[MemoryPass, ...]:
        """Rotate Q and K: read and write them in either direction; nothing is saved but Q and K."""
        if not self.rotary:
            return ()
        moved_bytes = 2 * (attention.query_bytes + attention.key_bytes)
        return (
            MemoryPass(
                name="rotary",
                module=self.module,
                kind="rotary",
                forward_bytes=moved_bytes,
                backward_bytes=moved_bytes,
            ),
        )

    def _gate_pass(self, attention: LocalAttention) -> tuple[MemoryPass, ...]:
        """Multiply the output by the gate: forward moves three tensors, backward five."""
        if not self.gated:
            return ()
        width = attention.output_bytes
        return (
            MemoryPass(
                name="attention_gate",
                module=self.module,
                kind="gated_activation",
                forward_bytes=3 * width,
                backward_bytes=5 * width,
                saved=(
                    SavedTensor(name="attention_gate", size_bytes=width, made_by=self.module),
                    SavedTensor(
                        name="attention_core_output", size_bytes=width, made_by=Module.CORE_ATTENTION
                    ),
                ),
            ),
        )

    def _output_product(self, attention: LocalAttention) -> MatrixProduct:
        return output_product(
            attention, hidden=self.hidden, made_by=self.module if self.gated else Module.CORE_ATTENTION
        )

    def _local(self, cut: Cut) -> LocalAttention:
        return LocalAttention(
            heads=self.heads // cut.tensor_parallel,
            kv_heads=self._local_kv_heads(cut.tensor_parallel),
            head_dim=self.head_dim,
            value_dim=self.head_dim,
            dropout=self.dropout,
            cut=cut,
            causal=self.causal,
            window=self.window,
            chunk=self.chunk,
            sinks=self.sinks,
        )

    def _local_kv_heads(self, tensor_parallel: int) -> int:
        """Key heads of one device; with more devices than key heads each is replicated."""
        return max(1, self.kv_heads // tensor_parallel)

    def _qkv_columns(self, tensor_parallel: int) -> int:
        query_heads = (2 if self.gated else 1) * self.heads // tensor_parallel
        return (query_heads + 2 * self._local_kv_heads(tensor_parallel)) * self.head_dim

    def _parameters(self, *, tensor_parallel: int) -> int:
        """Return one device's share; the output's bias, norms and surplus key heads are replicated."""
        qkv_columns = self._qkv_columns(tensor_parallel)
        heads = self.heads // tensor_parallel
        weights = self.hidden * (qkv_columns + heads * self.head_dim)
        biases = self.qkv_bias * qkv_columns + self.output_bias * self.hidden
        norms = 2 * self.head_dim * self.query_key_norm
        return weights + biases + norms + heads * (self.sinks + self.relative_buckets)


def output_product(
    attention: LocalAttention, *, hidden: int, made_by: Module, module: Module = Module.ATTENTION
) -> MatrixProduct:
    """Return the product of the core's output, which it saves as ``made_by`` made it."""
    name = f"{attention.name}_output"
    saved = [SavedTensor(name=f"{name}_input", size_bytes=attention.output_bytes, made_by=made_by)]
    keeping, width = attention.cut.keeping, attention.cut.element_bytes
    if keeping.input_bytes(width) < width:
        # The core keeps its output as it made it, the product a copy as it reads it.
        size_bytes = attention.output_bytes * keeping.input_bytes(width) / width
        saved.append(SavedTensor(name=f"{name}_input_copy", size_bytes=size_bytes, made_by=made_by))
    return MatrixProduct(
        name=name,
        module=module,
        rows=attention.cut.local_tokens,
        columns=hidden,
        inner=attention.heads * attention.value_dim,
        saved=tuple(saved),
    )
