"""The collectives with which a layer enters and leaves its tensor-parallel products.

Source: Megatron-LM (Shoeybi et al., 2019) without, Korthikanti et al. (2022) with sequence parallel.
Payloads are b s h / c elements in every case, counted as nccl-tests count them.
"""

from typing import Final, TypeGuard

from planner.units import Bytes
from planner.workload.layers import Cut
from planner.workload.operators import Collective, CollectivePass, Module, Operator, Phase

AXIS: Final = "tensor_parallel"


def entering_collectives(
    *, product: str, module: Module, hidden: int, cut: Cut
) -> tuple[CollectivePass, ...]:
    """Return what a column-parallel product needs before it and for its input's gradient.

    With sequence parallel the input is gathered, gathered again in backward (only the shard was
    saved) behind the input gradient, and the input gradient is scattered behind the weight
    gradient. Without, the input gradient is all-reduced behind the weight gradient.
    """
    if cut.tensor_parallel == 1:
        return ()
    payload = _activation_bytes(hidden, cut)

    def backward(name: str, operation: Collective, behind: Phase) -> CollectivePass:
        return CollectivePass(
            name=f"{product}_{name}",
            module=module,
            operation=operation,
            payload_bytes=payload,
            axis=AXIS,
            phase=Phase.BACKWARD,
            partner=product,
            hidden_behind=behind,
        )

    if not cut.sequence_parallel:
        return (backward("input_gradient_reduce", Collective.ALL_REDUCE, Phase.WEIGHT_GRADIENT),)
    return (
        tensor_collective(
            f"{product}_input_gather",
            module,
            Collective.ALL_GATHER,
            phase=Phase.FORWARD,
            payload_bytes=payload,
        ),
        backward("saved_input_gather", Collective.ALL_GATHER, Phase.INPUT_GRADIENT),
        backward("input_gradient_scatter", Collective.REDUCE_SCATTER, Phase.WEIGHT_GRADIENT),
    )


def leaving_collectives(*, product: str, module: Module, hidden: int, cut: Cut) -> tuple[CollectivePass, ...]:
    """Return what sums the partial outputs of a row-parallel product, and its mirror in backward."""
    if cut.tensor_parallel == 1:
        return ()
    payload = _activation_bytes(hidden, cut)
    if not cut.sequence_parallel:
        return (
            tensor_collective(
                f"{product}_output_reduce",
                module,
                Collective.ALL_REDUCE,
                phase=Phase.FORWARD,
                payload_bytes=payload,
            ),
        )
    return (
        tensor_collective(
            f"{product}_output_scatter",
            module,
            Collective.REDUCE_SCATTER,
            phase=Phase.FORWARD,
            payload_bytes=payload,
        ),
        tensor_collective(
            f"{product}_output_gradient_gather",
            module,
            Collective.ALL_GATHER,
            phase=Phase.BACKWARD,
            payload_bytes=payload,
        ),
    )


def gathers_a_saved_input(op: Operator) -> TypeGuard[CollectivePass]:
    """Whether a collective gathers, for a weight gradient, the shard of an input that forward saved."""
    return (
        isinstance(op, CollectivePass)
        and op.operation is Collective.ALL_GATHER
        and op.hidden_behind is Phase.INPUT_GRADIENT
    )


def scatters_an_output(op: Operator) -> TypeGuard[CollectivePass]:
    """Whether a collective scatters the whole output of a product in forward, which is freed at once."""
    return (
        isinstance(op, CollectivePass)
        and op.axis == AXIS
        and op.operation is Collective.REDUCE_SCATTER
        and op.phase is Phase.FORWARD
    )


def tensor_collective(
    name: str, module: Module, operation: Collective, *, phase: Phase, payload_bytes: Bytes
) -> CollectivePass:
    """Return a collective over the tensor-parallel ranks that nothing hides."""
    return CollectivePass(
        name=name, module=module, operation=operation, payload_bytes=payload_bytes, axis=AXIS, phase=phase
    )


def _activation_bytes(hidden: int, cut: Cut) -> Bytes:
    return cut.element_bytes * cut.local_tokens * hidden
