"""The ways to split attention over context parallel: what each has to divide, whatever the framework."""

from collections.abc import Iterator

from planner.job import AttentionKind
from planner.setting import Setting, divisors, nearest_values
from planner.strategy import ContextParallelScheme, Mesh, Violation
from planner.workload.split_attention import SplitAttention


def sequence_pieces(mesh: Mesh) -> int:
    """Return how many equal pieces a sequence is cut into over context parallel.

    Two for a rank, one from either end, so that causal masks leave all ranks as much; an all-to-all over
    all ranks needs no such balance.
    """
    halves = mesh.context_parallel_scheme is not ContextParallelScheme.ALL_TO_ALL
    return mesh.context_parallel * (2 if halves and mesh.context_parallel > 1 else 1)


def divides_heads(attention: SplitAttention, *, tensor_parallel: int, exchange: int) -> bool:
    """Whether an all-to-all over so many ranks gives each as many heads; key heads may be copied."""
    heads, kv_heads = attention.heads_of_rank(tensor_parallel), attention.kv_heads_of_rank(tensor_parallel)
    return heads % exchange == 0 and (kv_heads % exchange == 0 or exchange % kv_heads == 0)


def exchange_is_legal(setting: Setting, *, tensor_parallel: int, exchange: int) -> bool:
    """Whether an all-to-all over so many ranks comes out even in all attention of a model."""
    return all(
        divides_heads(attention, tensor_parallel=tensor_parallel, exchange=exchange)
        for attention in setting.split_attention
    )


def inner_degrees(context_parallel: int) -> tuple[int, ...]:
    """Return the sizes that the all-to-all of a mixed scheme may have."""
    return divisors(context_parallel)[1:-1]


def needs_fused_core(scheme: ContextParallelScheme) -> bool:
    """Whether a scheme merges or masks parts of attention as only a fused core does."""
    return scheme is not ContextParallelScheme.ALL_TO_ALL


def scheme_violations(setting: Setting, mesh: Mesh) -> Iterator[Violation]:
    """Check that a mesh's scheme can split the attention of a setting."""
    yield from _degree(mesh)
    if mesh.context_parallel <= 1:
        return
    fused = setting.job.attention is AttentionKind.FLASH
    if not fused and needs_fused_core(mesh.context_parallel_scheme):
        yield Violation(
            pointer="/plan/context_parallel",
            rule="context parallelism needs the fused attention core: the ring merges its partial results; "
            "all_to_all alone does without",
            nearest_legal=(1,),
        )
    yield from _heads(setting, mesh)


def _degree(mesh: Mesh) -> Iterator[Violation]:
    """Check that the inner all-to-all is there where the scheme is mixed, and there alone."""
    degree, context = mesh.all_to_all_degree, mesh.context_parallel
    is_mixed = mesh.context_parallel_scheme is ContextParallelScheme.MIXED
    legal = inner_degrees(max(context, 1)) if is_mixed else (1,)
    if is_mixed and not legal:
        yield Violation(
            pointer="/plan/context_parallel_scheme",
            rule=f"a mixed scheme needs context_parallel ({context}) to be a product of two degrees",
            nearest_legal=(ContextParallelScheme.ALL_TO_ALL, ContextParallelScheme.RING),
        )
    elif degree not in legal:
        rule = (
            f"all_to_all_degree ({degree}) must divide context_parallel ({context}) and lie between 1 and it"
            if is_mixed
            else f"all_to_all_degree ({degree}) is for the mixed scheme alone"
        )
        yield Violation(
            pointer="/plan/all_to_all_degree", rule=rule, nearest_legal=nearest_values(degree, legal)
        )


def _heads(setting: Setting, mesh: Mesh) -> Iterator[Violation]:
    """Check that every rank of an all-to-all gets as many heads."""
    exchange, tensor = mesh.head_exchange, max(mesh.tensor_parallel, 1)
    if exchange < 1 or exchange_is_legal(setting, tensor_parallel=tensor, exchange=exchange):
        return
    attention = next(
        attention
        for attention in setting.split_attention
        if not divides_heads(attention, tensor_parallel=tensor, exchange=exchange)
    )
    heads, kv_heads = attention.heads_of_rank(tensor), attention.kv_heads_of_rank(tensor)
    legal = [
        other
        for other in divisors(max(heads, 1))
        if exchange_is_legal(setting, tensor_parallel=tensor, exchange=other)
    ]
    is_mixed = mesh.context_parallel_scheme is ContextParallelScheme.MIXED
    yield Violation(
        pointer=f"/plan/{'all_to_all_degree' if is_mixed else 'context_parallel'}",
        rule=f"an all-to-all over {exchange} ranks must divide the {heads} attention heads of a "
        f"tensor-parallel rank, and divide or be a multiple of its {kv_heads} key/value heads",
        nearest_legal=nearest_values(exchange, legal),
    )
