"""The core of self-attention on one device: one fused kernel, or products around a softmax."""

from dataclasses import dataclass
from typing import Final

from planner.job import AttentionKind
from planner.units import Bytes
from planner.workload.layers import Cut
from planner.workload.operators import (
    AttentionCore,
    Collective,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Phase,
    SavedTensor,
)
from planner.workload.passes import dropout_mask

LOG_SUM_EXP_BYTES: Final = 4
"""Flash attention keeps one FP32 number per head and query."""

CORE: Final = Module.CORE_ATTENTION


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalAttention:
    """Self-attention as one device sees it: its heads, its queries, every key."""

    heads: int
    kv_heads: int
    head_dim: int
    dropout: float
    cut: Cut

    @property
    def query_length(self) -> int:
        """Queries per sequence on this device: s / c."""
        return self.cut.sequence_length // self.cut.context_parallel

    @property
    def pairs(self) -> int:
        """Scores on this device, masked ones included: b a/t s/c s."""
        return self.cut.micro_batch_size * self.heads * self.query_length * self.cut.sequence_length

    @property
    def query_bytes(self) -> Bytes:
        """Bytes of Q, and of the core's output."""
        return self.cut.element_bytes * self.cut.local_tokens * self.heads * self.head_dim

    @property
    def key_bytes(self) -> Bytes:
        """Bytes of K, and of V."""
        return self.cut.element_bytes * self.cut.local_tokens * self.kv_heads * self.head_dim


def core_operators(attention: LocalAttention) -> tuple[Operator, ...]:
    """Return the operators between the QKV product (or rotary) and the output product."""
    if attention.cut.attention is AttentionKind.FLASH:
        return (*_ring(attention), _flash(attention))
    softmax, scores = _softmax(attention), _scores(attention)
    return (scores, softmax, *_dropout(attention), _context(attention))


def _flash(attention: LocalAttention) -> AttentionCore:
    log_sum_exp = LOG_SUM_EXP_BYTES * attention.cut.local_tokens * attention.heads
    return AttentionCore(
        name="attention_core",
        module=CORE,
        batch=attention.cut.micro_batch_size,
        query_length=attention.query_length,
        key_length=attention.cut.sequence_length,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        value_dim=attention.head_dim,
        causal=True,
        saved=(
            _projected("query", attention.query_bytes),
            _projected("key", attention.key_bytes),
            _projected("value", attention.key_bytes),
            SavedTensor(name="attention_log_sum_exp", size_bytes=log_sum_exp, made_by=CORE),
        ),
    )


def _ring(attention: LocalAttention) -> tuple[CollectivePass, ...]:
    """Return the exchange of key and value blocks around a context-parallel ring.

    Liu et al., "Ring Attention" (2023): each rank passes its block on c - 1 times, behind the
    attention to the block before; backward passes keys, values and their gradients.
    """
    ranks = attention.cut.context_parallel
    if ranks == 1:
        return ()
    block_bytes = 2 * attention.key_bytes

    def exchange(name: str, phase: Phase, payload_bytes: Bytes) -> CollectivePass:
        return CollectivePass(
            name=name,
            module=CORE,
            operation=Collective.SEND_RECEIVE,
            payload_bytes=payload_bytes,
            axis="context_parallel",
            phase=phase,
            partner="attention_core",
            hidden_behind=phase,
            count=ranks - 1,
        )

    return (
        exchange("ring", Phase.FORWARD, block_bytes),
        exchange("ring_gradient", Phase.BACKWARD, 2 * block_bytes),
    )


def _scores(attention: LocalAttention) -> MatrixProduct:
    """Q K^T over all pairs: the causal half is masked afterwards, not skipped."""
    return MatrixProduct(
        name="attention_scores",
        module=CORE,
        rows=attention.query_length,
        columns=attention.cut.sequence_length,
        inner=attention.head_dim,
        count=attention.cut.micro_batch_size * attention.heads,
        has_weights=False,
        saved=(_projected("query", attention.query_bytes), _projected("key", attention.key_bytes)),
    )


def _softmax(attention: LocalAttention) -> MemoryPass:
    """Scale, mask and softmax: forward reads and writes once, backward reads dy and y and writes dx."""
    width = attention.cut.element_bytes * attention.pairs
    return MemoryPass(
        name="attention_softmax",
        module=CORE,
        kind="softmax",
        forward_bytes=2 * width,
        backward_bytes=3 * width,
        saved=(SavedTensor(name="attention_probabilities", size_bytes=width, made_by=CORE),),
    )


def _dropout(attention: LocalAttention) -> tuple[MemoryPass, ...]:
    """Dropout of the probabilities; its output is saved beside them for the context product."""
    mask = dropout_mask("attention_dropout", elements=attention.pairs, dropout=attention.dropout, module=CORE)
    if not mask:
        return ()
    width = attention.cut.element_bytes * attention.pairs
    moved_bytes = 2 * width + mask[0].size_bytes
    output = SavedTensor(name="attention_dropout_output", size_bytes=width, made_by=CORE)
    return (
        MemoryPass(
            name="attention_dropout",
            module=CORE,
            kind="dropout",
            forward_bytes=moved_bytes,
            backward_bytes=moved_bytes,
            saved=(*mask, output),
        ),
    )


def _context(attention: LocalAttention) -> MatrixProduct:
    """Probabilities times V; the probabilities are saved by the pass that made them."""
    return MatrixProduct(
        name="attention_context",
        module=CORE,
        rows=attention.query_length,
        columns=attention.head_dim,
        inner=attention.cut.sequence_length,
        count=attention.cut.micro_batch_size * attention.heads,
        has_weights=False,
        saved=(_projected("value", attention.key_bytes),),
    )


def _projected(name: str, size_bytes: Bytes) -> SavedTensor:
    return SavedTensor(name=name, size_bytes=size_bytes, made_by=Module.ATTENTION)
