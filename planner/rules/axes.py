"""Which axes a framework has, in which order ranks are numbered, and what each axis must divide."""

from collections.abc import Iterator
from typing import Final

from planner.framework import Framework
from planner.rules.rule import Part, Proposal, Rule
from planner.setting import legal_tensor_parallel, nearest_values
from planner.strategy import DEFAULT_RANK_ORDER, Violation, expert_order_beside

AXES: Final = ("tensor_parallel", "pipeline_parallel", "context_parallel")
INNERMOST_FIRST: Final = "innermost first"


def _missing(framework: Framework) -> list[str]:
    return [axis for axis in AXES if not getattr(framework, axis)]


def _axes_words(framework: Framework) -> str | None:
    missing = _missing(framework)
    return ", ".join(f"has no {axis}" for axis in missing) if missing else None


def _axes(proposal: Proposal) -> Iterator[Violation]:
    for axis in _missing(proposal.framework):
        if getattr(proposal.layout.mesh, axis) > 1:
            rule = f"{proposal.who} has no {axis}"
            yield Violation(pointer=f"/plan/{axis}", rule=rule, nearest_legal=(1,))


def _heads_words(framework: Framework) -> str | None:
    if framework.limits.copies_heads or not framework.tensor_parallel:
        return None
    return "tensor_parallel divides the key/value heads: none is copied to several ranks"


def _heads(proposal: Proposal) -> Iterator[Violation]:
    """Check that nothing is copied for want of pieces."""
    setting, degree = proposal.setting, proposal.layout.mesh.tensor_parallel
    for split in setting.model_splits:
        is_copied = split.replicate and split.axis == "tensor_parallel" and degree > split.pieces
        if is_copied and split.allows(degree):
            yield Violation(
                pointer="/plan/tensor_parallel",
                rule=f"tensor_parallel ({degree}) must divide the {split.pieces} {split.name}: "
                f"{proposal.who} copies none to several ranks",
                nearest_legal=nearest_values(degree, legal_tensor_parallel(setting)),
            )


def _vocabulary_words(framework: Framework) -> str | None:
    even = not framework.limits.cuts_vocabulary_unevenly
    return "tensor_parallel divides the vocabulary" if even else None


def _vocabulary(proposal: Proposal) -> Iterator[Violation]:
    setting, degree = proposal.setting, proposal.layout.mesh.tensor_parallel
    for size in setting.vocabularies:
        if degree > 1 and size % degree:
            legal = [other for other in legal_tensor_parallel(setting) if size % other == 0]
            yield Violation(
                pointer="/plan/tensor_parallel",
                rule=f"tensor_parallel ({degree}) must divide the vocabulary ({size}) in {proposal.who}",
                nearest_legal=nearest_values(degree, legal),
            )


def _orders_words(framework: Framework) -> str | None:
    orders = framework.limits.rank_orders
    named = " or ".join(", ".join(order) for order in orders)
    return f"rank_order ({INNERMOST_FIRST}) is {named}" if orders else None


def _orders(proposal: Proposal) -> Iterator[Violation]:
    order, legal = proposal.layout.mesh.rank_order, proposal.framework.limits.rank_orders
    if order not in legal:
        yield Violation(
            pointer="/plan/rank_order",
            rule=f"{proposal.who} does not number its ranks by {', '.join(order)} ({INNERMOST_FIRST})",
            nearest_legal=tuple(map(list, legal or (DEFAULT_RANK_ORDER,))),
        )


def _expert_orders_words(framework: Framework) -> str | None:
    is_bound = framework.limits.rank_orders and framework.limits.experts.exist
    return "expert_rank_order is rank_order, expert axes in place of the others" if is_bound else None


def _expert_orders(proposal: Proposal) -> Iterator[Violation]:
    """Check that experts are numbered as all else is: frameworks have one order for both."""
    mesh = proposal.layout.mesh
    beside = expert_order_beside(mesh.rank_order)
    if proposal.setting.has_experts and mesh.expert_rank_order != beside:
        yield Violation(
            pointer="/plan/expert_rank_order",
            rule=f"{proposal.who} does not number experts by {', '.join(mesh.expert_rank_order)} beside "
            f"ranks by {', '.join(mesh.rank_order)} ({INNERMOST_FIRST})",
            nearest_legal=(list(beside),),
        )


_MESH: Final = frozenset({Part.MESH})
RULES: Final = (
    Rule(name="axes", parts=_MESH, words=_axes_words, check=_axes),
    Rule(name="whole-heads", parts=_MESH, words=_heads_words, check=_heads),
    Rule(name="even-vocabulary", parts=_MESH, words=_vocabulary_words, check=_vocabulary),
    Rule(name="rank-order", parts=_MESH, words=_orders_words, check=_orders),
    Rule(name="expert-rank-order", parts=_MESH, words=_expert_orders_words, check=_expert_orders),
)
