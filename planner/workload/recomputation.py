"""What recomputation of modules frees, and what it runs again."""

from collections.abc import Collection, Sequence
from typing import Final

from planner.units import Bytes
from planner.workload.operators import CollectivePass, Module, Operator, Phase, SavedTensor

NOTHING: Final[frozenset[Module]] = frozenset()
"""No recomputation."""

WHOLE_LAYER: Final[frozenset[Module]] = frozenset(Module)
"""Full recomputation: only the layer's input stays."""

OUTPUT_DISCARDING: Final = frozenset({Module.NORM, Module.LATENT_PROJECTION, Module.MOE_ACTIVATION})
"""Modules whose recomputation also drops their output, which the next operator had saved."""

PARTS: Final = {
    Module.ATTENTION: frozenset({Module.LATENT_PROJECTION, Module.INNER_NORM}),
    Module.MIXER: frozenset({Module.INNER_NORM}),
    Module.MLP: frozenset({Module.MLP_NORM}),
    Module.MOE: frozenset({Module.MOE_ACTIVATION, Module.SHARED_EXPERTS}),
}
"""Modules within a module: they run again with it."""


def saved_bytes(operators: Sequence[Operator], *, recompute: Collection[Module] = NOTHING) -> Bytes:
    """Return the bytes that one micro-batch keeps from forward to backward.

    A tensor goes when the module that makes it runs again, unless an operator that does not run
    again needs it: the inputs of a recomputed module stay, what it saved inside goes.
    """
    return sum(tensor.size_bytes for tensor in kept_tensors(operators, recompute=recompute))


def kept_tensors(operators: Sequence[Operator], *, recompute: Collection[Module]) -> tuple[SavedTensor, ...]:
    """Return the saved tensors that stay in memory under recomputation of some modules."""
    again = with_parts(recompute)
    return tuple(
        tensor
        for operator in operators
        if not isinstance(operator, CollectivePass)
        for tensor in operator.saved
        if not _is_freed(tensor, user=operator.module, recompute=again)
    )


def recomputed_operators(
    operators: Sequence[Operator], *, recompute: Collection[Module]
) -> tuple[Operator, ...]:
    """Return the operators whose forward runs a second time before backward, in forward order.

    The forward collectives of a recomputed module run again with it, as the frameworks do. What has no
    backward runs once.
    """
    again = with_parts(recompute)
    return tuple(
        operator
        for operator in operators
        if operator.module in again and _has_forward(operator) and not operator.forward_only
    )


def with_parts(recompute: Collection[Module]) -> frozenset[Module]:
    """Return modules with the modules within them."""
    return frozenset(recompute).union(*(PARTS.get(module, NOTHING) for module in recompute))


def _is_freed(tensor: SavedTensor, *, user: Module, recompute: Collection[Module]) -> bool:
    if tensor.only_to_rerun and user not in recompute:
        return True
    is_made_again = tensor.made_by is not None and tensor.made_by in recompute
    return is_made_again and (user in recompute or tensor.made_by in OUTPUT_DISCARDING)


def _has_forward(operator: Operator) -> bool:
    return not isinstance(operator, CollectivePass) or operator.phase is Phase.FORWARD
