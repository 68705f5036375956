"""The attention of a chain whose sequences context parallel splits: what its schemes have to divide."""

from dataclasses import dataclass

from planner.workload.layers import Cut, Workload
from planner.workload.operators import AttentionCore, CollectivePass

AXIS = "context_parallel"


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitAttention:
    """Heads and key heads of one kind of attention, and whether it sees a window of the keys alone."""

    heads: int
    kv_heads: int
    windowed: bool

    def heads_of_rank(self, tensor_parallel: int) -> int:
        """Return the heads of one tensor-parallel rank."""
        return self.heads // tensor_parallel

    def kv_heads_of_rank(self, tensor_parallel: int) -> int:
        """Return the key heads of one tensor-parallel rank; those that are too few are copied."""
        return max(1, self.kv_heads // tensor_parallel)


def split_attention(workload: Workload, *, sequence_length: int) -> tuple[SplitAttention, ...]:
    """Return every kind of attention in a chain that context parallel splits, in its order.

    Asks the layers themselves: those whose sequences stay whole (of images) exchange nothing.
    """
    cut = Cut(micro_batch_size=1, sequence_length=sequence_length, context_parallel=2)
    found: dict[SplitAttention, None] = {}
    for run in workload.runs:
        operators = run.layer.operators(cut)
        partners = {op.partner for op in operators if isinstance(op, CollectivePass) and op.axis == AXIS}
        for op in operators:
            if isinstance(op, AttentionCore) and op.name in partners:
                windowed = op.window is not None and op.window < op.key_length
                attention = SplitAttention(heads=op.heads, kv_heads=op.kv_heads, windowed=windowed)
                found[attention] = None
    return tuple(found)
