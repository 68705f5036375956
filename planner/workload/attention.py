"""The core of attention on one device: one fused kernel, or products around a softmax."""

from dataclasses import dataclass, replace
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
    """Attention as one device sees it: its heads, its queries, every key.

    ``key_length`` is the number of keys where it is not that of the queries; ``name`` begins the names
    of its operators, ``made_by`` is the module that makes queries, keys and values. Where it is
    ``exchanged``, its heads are fewer and its sequence longer than what the products around it work on.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dropout: float
    cut: Cut
    causal: bool = True
    window: int | None = None
    chunk: int | None = None
    sinks: bool = False
    memory_length: int | None = None
    name: str = "attention"
    made_by: Module = Module.ATTENTION
    exchanged: bool = False

    @property
    def query_length(self) -> int:
        """Queries per sequence on this device: s / c."""
        return self.cut.sequence_length // self.cut.context_parallel

    @property
    def key_length(self) -> int:
        """Keys per sequence: s, or as long as the memory is."""
        return self.memory_length or self.cut.sequence_length

    @property
    def pairs(self) -> int:
        """Scores on this device, masked ones included: b a/t s/c s."""
        return self.cut.micro_batch_size * self.heads * self.query_length * self.key_length

    @property
    def query_bytes(self) -> Bytes:
        """Bytes of Q."""
        return self._bytes(self.heads * self.head_dim, self.query_length)

    @property
    def key_bytes(self) -> Bytes:
        """Bytes of K."""
        return self._bytes(self.kv_heads * self.head_dim, self._local_keys)

    @property
    def value_bytes(self) -> Bytes:
        """Bytes of V."""
        return self._bytes(self.kv_heads * self.value_dim, self._local_keys)

    @property
    def output_bytes(self) -> Bytes:
        """Bytes of the core's output."""
        return self._bytes(self.heads * self.value_dim, self.query_length)

    @property
    def with_fewer_heads(self) -> "LocalAttention":
        """The attention after ranks have traded heads; key heads that are too few are copied."""
        ranks = self.cut.head_exchange
        return replace(
            self,
            heads=self.heads // ranks,
            kv_heads=max(1, self.kv_heads // ranks),
            cut=replace(self.cut, context_parallel=self.cut.context_parallel // ranks),
            exchanged=True,
        )

    @property
    def _local_keys(self) -> int:
        return self.key_length // self.cut.context_parallel

    def _bytes(self, width: int, length: int) -> Bytes:
        return self.cut.element_bytes * self.cut.micro_batch_size * length * width


def core_operators(attention: LocalAttention) -> tuple[Operator, ...]:
    """Return the operators between the QKV product (or rotary) and the output product."""
    if attention.cut.head_exchange == 1:
        return _core(attention)
    inner = attention.with_fewer_heads
    into = (("query", inner.query_bytes), ("key", inner.key_bytes), ("value", inner.value_bytes))
    return (
        *(exchange for name, size_bytes in into for exchange in _all_to_all(name, size_bytes, inner)),
        *_core(inner),
        *_all_to_all("output", inner.output_bytes, inner),
    )


def split_otherwise(core: AttentionCore, cut: Cut) -> tuple[Operator, ...]:
    """Return a fused core of a ring over all of context parallel, and what it sends, as another cut has them.

    What reads its output is not among them: it keeps as much however attention is split.
    """
    attention = LocalAttention(
        heads=core.heads,
        kv_heads=core.kv_heads,
        head_dim=core.head_dim,
        value_dim=core.value_dim,
        dropout=0.0,
        cut=cut,
        causal=core.causal,
        window=core.window,
        chunk=core.chunk,
        sinks=core.sinks,
        memory_length=core.key_length,
        name=core.name.removesuffix("_core"),
    )
    operators = core_operators(attention)
    return tuple(replace(op, forward_only=True) for op in operators) if core.forward_only else operators


def _core(attention: LocalAttention) -> tuple[Operator, ...]:
    """Return the attention to a rank's own keys, and what brings it the others'."""
    if attention.cut.attention is AttentionKind.FLASH:
        others = _gather if attention.cut.gathers_keys else _ring
        return (*others(attention), _flash(attention))
    softmax, scores = _softmax(attention), _scores(attention)
    return (scores, softmax, *_dropout(attention), _context(attention))


def _flash(attention: LocalAttention) -> AttentionCore:
    log_sum_exp = LOG_SUM_EXP_BYTES * attention.cut.local_tokens * attention.heads
    return AttentionCore(
        name=f"{attention.name}_core",
        module=CORE,
        batch=attention.cut.micro_batch_size,
        query_length=attention.query_length,
        key_length=attention.key_length,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        value_dim=attention.value_dim,
        causal=attention.causal,
        window=attention.window,
        chunk=attention.chunk,
        sinks=attention.sinks,
        working_bytes=_core_working_bytes(attention),
        saved=(
            _projected("query", attention.query_bytes, attention),
            _projected("key", attention.key_bytes, attention),
            _projected("value", attention.value_bytes, attention),
            SavedTensor(name=f"{attention.name}_log_sum_exp", size_bytes=log_sum_exp, made_by=CORE),
            *_exchanged_output(attention),
        ),
    )


def _exchanged_output(attention: LocalAttention) -> tuple[SavedTensor, ...]:
    """Return the output as the core made it; what the next product keeps lies otherwise."""
    if not attention.exchanged:
        return ()
    name = f"{attention.name}_exchanged_output"
    return (SavedTensor(name=name, size_bytes=attention.output_bytes, made_by=CORE),)


def _core_working_bytes(attention: LocalAttention) -> Bytes:
    """Return what lives beside what is saved while backward runs.

    All keys and values and their gradients where they are gathered; of a ring the block in use and the
    one on its way, with their gradients; of an exchange Q, K and V's gradients in both layouts.
    """
    cut, block_bytes = attention.cut, attention.key_bytes + attention.value_bytes
    traded = 2 * (attention.query_bytes + block_bytes) if attention.exchanged else 0.0
    if cut.gathers_keys:
        return traded + 2 * cut.context_parallel * block_bytes
    return traded + (4 * block_bytes if cut.context_parallel > 1 else 0.0)


def _ring(attention: LocalAttention) -> tuple[CollectivePass, ...]:
    """Return the exchange of key and value blocks around a context-parallel ring.

    Liu et al., "Ring Attention" (2023): each rank passes its block on c - 1 times, behind the
    attention to the block before; backward passes keys, values and their gradients.
    """
    ranks = attention.cut.context_parallel
    if ranks == 1:
        return ()
    block_bytes = attention.key_bytes + attention.value_bytes

    def exchange(name: str, phase: Phase, payload_bytes: Bytes) -> CollectivePass:
        return CollectivePass(
            name=name,
            module=CORE,
            operation=Collective.SEND_RECEIVE,
            payload_bytes=payload_bytes,
            axis="context_parallel",
            phase=phase,
            partner=f"{attention.name}_core",
            hidden_behind=phase,
            count=ranks - 1,
            ranks=ranks,
            step=attention.cut.head_exchange,
        )

    return (
        exchange(f"{attention.name}_ring", Phase.FORWARD, block_bytes),
        exchange(f"{attention.name}_ring_gradient", Phase.BACKWARD, 2 * block_bytes),
    )


def _gather(attention: LocalAttention) -> tuple[CollectivePass, ...]:
    """Return what gathers all keys and values before attention, again before its backward, and back.

    Llama 3 (2024), section 3.3.2: exposed, but two or three collectives whatever the mask.
    """
    total_bytes = attention.cut.context_parallel * (attention.key_bytes + attention.value_bytes)
    gather, scatter = Collective.ALL_GATHER, Collective.REDUCE_SCATTER
    return tuple(
        CollectivePass(
            name=f"{attention.name}_{name}",
            module=CORE,
            operation=operation,
            payload_bytes=total_bytes,
            axis="context_parallel",
            phase=phase,
        )
        for name, operation, phase in (
            ("gathered_keys", gather, Phase.FORWARD),
            ("gathered_keys_again", gather, Phase.BACKWARD),
            ("scattered_key_gradients", scatter, Phase.BACKWARD),
        )
    )


def _all_to_all(name: str, size_bytes: Bytes, attention: LocalAttention) -> tuple[CollectivePass, ...]:
    """Return the exchange of one tensor between a part of the sequence and a part of the heads, and back.

    Jacobs et al., "DeepSpeed Ulysses" (2023): four of them around attention in forward, four in backward.
    """
    return tuple(
        CollectivePass(
            name=f"{attention.name}_{name}_exchange{suffix}",
            module=CORE,
            operation=Collective.ALL_TO_ALL,
            payload_bytes=size_bytes,
            axis="context_parallel",
            phase=phase,
            ranks=attention.cut.head_exchange,
        )
        for phase, suffix in ((Phase.FORWARD, ""), (Phase.BACKWARD, "_gradient"))
    )


def _scores(attention: LocalAttention) -> MatrixProduct:
    """Q K^T over all pairs: the causal half is masked afterwards, not skipped."""
    return MatrixProduct(
        name=f"{attention.name}_scores",
        module=CORE,
        rows=attention.query_length,
        columns=attention.key_length,
        inner=attention.head_dim,
        count=attention.cut.micro_batch_size * attention.heads,
        has_weights=False,
        saved=(
            _projected("query", attention.query_bytes, attention),
            _projected("key", attention.key_bytes, attention),
        ),
    )


def _softmax(attention: LocalAttention) -> MemoryPass:
    """Scale, mask and softmax: forward reads and writes once, backward reads dy and y and writes dx."""
    width = attention.cut.element_bytes * attention.pairs
    kept_bytes = attention.cut.keeping.probability_bytes(attention.cut.element_bytes) * attention.pairs
    return MemoryPass(
        name=f"{attention.name}_softmax",
        module=CORE,
        kind="softmax",
        forward_bytes=2 * width,
        backward_bytes=3 * width,
        saved=(SavedTensor(name=f"{attention.name}_probabilities", size_bytes=kept_bytes, made_by=CORE),),
    )


def _dropout(attention: LocalAttention) -> tuple[MemoryPass, ...]:
    """Dropout of the probabilities; its output is saved beside them for the context product."""
    name = f"{attention.name}_dropout"
    mask = dropout_mask(name, elements=attention.pairs, dropout=attention.dropout, module=CORE)
    if not mask:
        return ()
    width = attention.cut.element_bytes * attention.pairs
    moved_bytes = 2 * width + mask[0].size_bytes
    output = SavedTensor(name=f"{name}_output", size_bytes=width, made_by=CORE)
    return (
        MemoryPass(
            name=name,
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
        name=f"{attention.name}_context",
        module=CORE,
        rows=attention.query_length,
        columns=attention.value_dim,
        inner=attention.key_length,
        count=attention.cut.micro_batch_size * attention.heads,
        has_weights=False,
        saved=(_projected("value", attention.value_bytes, attention),),
    )


def _projected(name: str, size_bytes: Bytes, attention: LocalAttention) -> SavedTensor:
    return SavedTensor(name=name, size_bytes=size_bytes, made_by=attention.made_by)
