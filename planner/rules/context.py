"""How a framework splits attention over context parallel: by which schemes, beside which other axes."""

from collections.abc import Iterator
from typing import Final

from planner.context_schemes import exchange_is_legal, needs_fused_core
from planner.framework import Framework
from planner.job import AttentionKind
from planner.limits import SCHEMES
from planner.rules.rule import Part, Proposal, Rule
from planner.setting import divisors, legal_tensor_parallel, nearest_values
from planner.strategy import ContextParallelScheme, Violation


def _schemes_words(framework: Framework) -> str | None:
    schemes = framework.limits.context_parallel_schemes
    if not framework.context_parallel or set(schemes) == set(SCHEMES):
        return None
    return f"context_parallel_scheme is {' or '.join(schemes)}"


def _schemes(proposal: Proposal) -> Iterator[Violation]:
    mesh, legal = proposal.layout.mesh, proposal.framework.limits.context_parallel_schemes
    if mesh.context_parallel > 1 and mesh.context_parallel_scheme not in legal:
        yield Violation(
            pointer="/plan/context_parallel_scheme",
            rule=f"{proposal.who} has no {mesh.context_parallel_scheme} context parallelism",
            nearest_legal=legal,
        )


def _halves_words(framework: Framework) -> str | None:
    if not framework.limits.shards_sequence_halves:
        return None
    return "the sequence is a multiple of 2 x context_parallel x tensor_parallel where it is split by both"


def _halves(proposal: Proposal) -> Iterator[Violation]:
    """Check that sequence parallelism cuts whole pieces of context parallelism."""
    setting, mesh = proposal.setting, proposal.layout.mesh
    pieces = 2 * mesh.context_parallel * mesh.tensor_parallel
    for length in setting.sequence_lengths:
        if mesh.context_parallel > 1 and mesh.sequence_parallel and length % pieces:
            whole = length // (2 * mesh.context_parallel)
            legal = [degree for degree in legal_tensor_parallel(setting) if whole % degree == 0]
            yield Violation(
                pointer="/plan/tensor_parallel",
                rule=f"{proposal.who} cuts a sequence of {length} tokens into 2 x context_parallel x "
                f"tensor_parallel ({pieces}) equal pieces",
                nearest_legal=nearest_values(mesh.tensor_parallel, legal),
            )


def _windows_words(framework: Framework) -> str | None:
    limits = framework.limits
    if not framework.context_parallel or set(limits.context_parallel_schemes) <= set(limits.windowed_schemes):
        return None
    return f"attention to a window of keys is split by {' or '.join(limits.windowed_schemes)}"


def _windows(proposal: Proposal) -> Iterator[Violation]:
    mesh, limits = proposal.layout.mesh, proposal.framework.limits
    windowed = any(attention.windowed for attention in proposal.setting.split_attention)
    if windowed and mesh.context_parallel > 1 and mesh.context_parallel_scheme not in limits.windowed_schemes:
        yield Violation(
            pointer="/plan/context_parallel_scheme",
            rule=f"{proposal.who} passes no window of keys around a {mesh.context_parallel_scheme}",
            nearest_legal=tuple(
                scheme for scheme in limits.windowed_schemes if scheme in limits.context_parallel_schemes
            )
            or (ContextParallelScheme.RING,),
        )


def _copies_words(framework: Framework) -> str | None:
    limits = framework.limits
    exchanges = {ContextParallelScheme.ALL_TO_ALL, ContextParallelScheme.MIXED}
    if not exchanges & set(limits.context_parallel_schemes) or limits.copies_exchanged_heads:
        return None
    return "an all-to-all over context parallel divides the key/value heads: none is copied to several ranks"


def _copies(proposal: Proposal) -> Iterator[Violation]:
    """Check that an all-to-all copies no key heads for want of them."""
    mesh, setting = proposal.layout.mesh, proposal.setting
    exchange, tensor = mesh.head_exchange, mesh.tensor_parallel
    few = [
        heads
        for attention in setting.split_attention
        if (heads := attention.kv_heads_of_rank(tensor)) % exchange
    ]
    if exchange == 1 or not few or not exchange_is_legal(setting, tensor_parallel=tensor, exchange=exchange):
        return
    is_mixed = mesh.context_parallel_scheme is ContextParallelScheme.MIXED
    yield Violation(
        pointer=f"/plan/{'all_to_all_degree' if is_mixed else 'context_parallel'}",
        rule=f"an all-to-all over {exchange} ranks must divide the {few[0]} key/value heads of a "
        f"tensor-parallel rank: {proposal.who} copies none to several ranks",
        nearest_legal=nearest_values(exchange, divisors(few[0])),
    )


def _fused_words(framework: Framework) -> str | None:
    if not framework.context_parallel or framework.limits.splits_unfused_attention:
        return None
    return "context parallelism needs the fused attention core"


def _fused(proposal: Proposal) -> Iterator[Violation]:
    mesh = proposal.layout.mesh
    unfused = proposal.setting.job.attention is not AttentionKind.FLASH
    if unfused and mesh.context_parallel > 1 and not needs_fused_core(mesh.context_parallel_scheme):
        yield Violation(
            pointer="/plan/context_parallel",
            rule=f"{proposal.who} splits the fused attention core alone over context parallel",
            nearest_legal=(1,),
        )


def _pieces_words(framework: Framework) -> str | None:
    if not framework.context_parallel or not framework.limits.always_takes_halves:
        return None
    return "the sequence is a multiple of 2 x context_parallel whatever the scheme"


def _pieces(proposal: Proposal) -> Iterator[Violation]:
    mesh = proposal.layout.mesh
    if mesh.context_parallel == 1 or mesh.context_parallel_scheme is not ContextParallelScheme.ALL_TO_ALL:
        return
    for length in proposal.setting.sequence_lengths:
        if length % (2 * mesh.context_parallel):
            legal = [degree for degree in divisors(length) if degree == 1 or length % (2 * degree) == 0]
            yield Violation(
                pointer="/plan/context_parallel",
                rule=f"{proposal.who} asks for a sequence ({length} tokens) that 2 x context_parallel "
                f"({2 * mesh.context_parallel}) divides",
                nearest_legal=nearest_values(mesh.context_parallel, legal),
            )


def _alone_words(framework: Framework) -> str | None:
    alone = framework.context_parallel and framework.limits.context_parallel_alone
    return "context_parallel goes with neither tensor_parallel nor pipeline_parallel" if alone else None


def _alone(proposal: Proposal) -> Iterator[Violation]:
    mesh = proposal.layout.mesh
    if mesh.context_parallel > 1 and max(mesh.tensor_parallel, mesh.pipeline_parallel) > 1:
        yield Violation(
            pointer="/plan/context_parallel",
            rule=f"{proposal.who} splits sequences beside neither tensor nor pipeline parallelism",
            nearest_legal=(1,),
        )


_MESH: Final = frozenset({Part.MESH})
SCHEME_RULES: Final = (
    Rule(name="context-parallel-scheme", parts=_MESH, words=_schemes_words, check=_schemes),
    Rule(name="windows-in-context-parallel", parts=_MESH, words=_windows_words, check=_windows),
    Rule(name="whole-exchanged-heads", parts=_MESH, words=_copies_words, check=_copies),
    Rule(name="fused-context-parallel", parts=_MESH, words=_fused_words, check=_fused),
    Rule(name="context-parallel-halves", parts=_MESH, words=_pieces_words, check=_pieces),
)
"""Those that read tensor and context parallel and how attention is split, and nothing else of a mesh."""
RULES: Final = (
    Rule(name="even-sequence", parts=_MESH, words=_halves_words, check=_halves),
    *SCHEME_RULES,
    Rule(name="context-parallel-alone", parts=_MESH, words=_alone_words, check=_alone),
)
