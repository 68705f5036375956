"""Functions that training runs as fused kernels where the meta device would take them apart.

Attention becomes one operator, as the flash and memory-efficient kernels are. A recurrence becomes what
cuDNN makes of it (Appleyard et al., 2016): one product of all steps with the input weights, then step by
step a product with the recurrent weights and one pass over the gates.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch.nn.functional import dropout, linear, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from profiler.tracing.recording import Recorder

HEADLESS_DIMS: Final = 3
"""Dimensions of a query without heads: batch, length, width."""

KEEPS_SUMS: Final = True
"""Whether the kernel keeps the log-sum-exp of each row: it does when it is trained."""

GATES: Final[Mapping[Any, int]] = {torch.lstm: 4, torch.gru: 3, torch.rnn_tanh: 1, torch.rnn_relu: 1}
"""Gates of each recurrence, every one as wide as its state."""


class FusedFunctions(TorchFunctionMode):
    """Runs attention and recurrences as training does."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - torch's
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Run a function, or what stands for it."""
        if func is scaled_dot_product_attention:
            return attention(*args, **(kwargs or {}))
        if func in GATES and _is_plain(args):
            return self._recurrence(func, *args)
        return func(*args, **(kwargs or {}))

    def _recurrence(
        self,
        func: Any,  # noqa: ANN401
        inputs: torch.Tensor,
        start: Any,  # noqa: ANN401
        weights: Sequence[torch.Tensor],
        has_biases: bool,  # noqa: FBT001
        num_layers: int,
        dropout_share: float,
        is_training: bool,  # noqa: FBT001
        is_bidirectional: bool,  # noqa: FBT001
        batch_first: bool,  # noqa: FBT001
    ) -> tuple[torch.Tensor, ...]:
        """Return what a recurrence returns: all outputs of its last layer, and the last states of each."""
        states = tuple(start) if func is torch.lstm else (start,)
        directions, per_direction = 1 + is_bidirectional, 4 if has_biases else 2
        steps = inputs.transpose(0, 1) if batch_first else inputs
        last_states = []
        for layer in range(num_layers):
            outputs = []
            for direction in range(directions):
                place = layer * directions + direction
                own = weights[per_direction * place : per_direction * (place + 1)]
                output, ends = self._direction(steps, [state[place] for state in states], own)
                outputs.append(output)
                last_states.append(ends)
            with self._recorder.free():
                steps = torch.cat(outputs, dim=-1) if is_bidirectional else outputs[0]
            if dropout_share and layer + 1 < num_layers:
                steps = dropout(steps, dropout_share, is_training)
        with self._recorder.free():
            ends_of_all = tuple(torch.stack(ends) for ends in zip(*last_states, strict=True))
        return (steps.transpose(0, 1) if batch_first else steps, *ends_of_all)

    def _direction(
        self, steps: torch.Tensor, states: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Run one layer in one direction: one step stands for all."""
        input_weight, state_weight, *biases = weights
        input_bias, state_bias = biases or (None, None)
        input_gates = linear(steps, input_weight, input_bias)
        with self._recorder.free():
            first_gates = input_gates[0]
            before = _applied(PreviousState, first_gates, states[0])
        with self._recorder.repeating(len(steps)):
            state_gates = linear(before, state_weight, state_bias)
            state, *carry = _applied(RecurrentCell, first_gates, state_gates, states[-1], len(states) > 1)
        with self._recorder.free():
            return _applied(EveryStep, state, len(steps)), (state, *carry)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
) -> torch.Tensor:
    """Run attention as one kernel: flash where there is no mask, the memory-efficient one where there is."""
    if query.dim() == HEADLESS_DIMS:
        whole = attention(
            query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), attn_mask, dropout_p, is_causal, scale
        )
        return whole.squeeze(1)
    query_BHSD, key_BHTD, value_BHTD = (
        tensor.reshape(-1, *tensor.shape[-3:]) for tensor in (query, key, value)
    )
    if attn_mask is None:
        output_BHSD = torch.ops.aten._scaled_dot_product_flash_attention(  # noqa: SLF001 - the kernel's name
            query_BHSD, key_BHTD, value_BHTD, dropout_p, is_causal, scale=scale
        )[0]
    else:
        if enable_gqa:
            groups = query.shape[-3] // key.shape[-3]
            key_BHTD, value_BHTD = (
                tensor.repeat_interleave(groups, dim=-3) for tensor in (key_BHTD, value_BHTD)
            )
        mask = attn_mask.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])
        mask_BHST = mask.reshape(-1, *mask.shape[-3:])
        output_BHSD = torch.ops.aten._scaled_dot_product_efficient_attention(  # noqa: SLF001 - the kernel's name
            query_BHSD, key_BHTD, value_BHTD, mask_BHST, KEEPS_SUMS, dropout_p, is_causal, scale=scale
        )[0]
    output: torch.Tensor = output_BHSD.reshape(*query.shape[:-1], value.shape[-1])
    return output


class RecurrentCell(torch.autograd.Function):
    """One pass over the gates of a step; it keeps them and the carried state."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's
        input_gates: torch.Tensor,
        state_gates: torch.Tensor,
        carry: torch.Tensor,
        carries: bool,  # noqa: FBT001 - torch passes arguments on by place
    ) -> tuple[torch.Tensor, ...]:
        """Return the next state, with ``carries`` also what is carried beside it (an LSTM's cell)."""
        *states, gates = torch.ops.meshplan.recurrent_cell(input_gates, state_gates, carry, carries)
        ctx.save_for_backward(*states[1:], *([gates] if gates.shape != carry.shape else []))
        ctx.width = input_gates.shape[-1]
        return tuple(states)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of the gates, which are equal, and of the carried state."""
        gates, carry = torch.ops.meshplan.recurrent_cell_backward(
            list(gradients), list(ctx.saved_tensors), ctx.width
        )
        return gates, gates, carry, None


class PreviousState(torch.autograd.Function):
    """The state that a step begins with, which the step before made of what is trained."""

    @staticmethod
    def forward(_ctx: Any, _gates: torch.Tensor, state: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - torch's
        """Return memory for a state."""
        return torch.empty_like(state)

    @staticmethod
    def backward(_ctx: Any, *_gradients: torch.Tensor) -> tuple[None, None]:  # noqa: ANN401
        """Return nothing: the step before is one of those that the step stands for."""
        return None, None


class EveryStep(torch.autograd.Function):
    """The outputs of all steps, which the passes of the steps have written; products keep them."""

    @staticmethod
    def forward(ctx: Any, state: torch.Tensor, num_steps: int) -> torch.Tensor:  # noqa: ANN401 - torch's
        """Return memory for the outputs of all steps."""
        steps = state.new_empty(num_steps, *state.shape)
        ctx.save_for_backward(steps)
        return steps

    @staticmethod
    def backward(_ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        """Return the gradient of one step."""
        return gradients[0][0], None


def _cell(
    input_gates: torch.Tensor,
    state_gates: torch.Tensor,
    carry: torch.Tensor,
    carries: bool,  # noqa: FBT001 - torch passes arguments on by place
) -> list[torch.Tensor]:
    del state_gates
    states = [torch.empty_like(carry) for _ in range(1 + carries)]
    return [*states, torch.empty_like(input_gates)]


def _cell_backward(
    gradients: Sequence[torch.Tensor], kept: Sequence[torch.Tensor], width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    del kept
    state = gradients[0]
    return state.new_empty(*state.shape[:-1], width), torch.empty_like(state)


def _applied(function: Any, *arguments: object) -> Any:  # noqa: ANN401 - as torch has it
    return function.apply(*arguments)


_LIBRARY: Final[Any] = torch.library.Library("meshplan", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's
for _name, _arguments, _shapes in (
    (
        "recurrent_cell",
        "(Tensor input_gates, Tensor state_gates, Tensor carry, bool carries) -> Tensor[]",
        _cell,
    ),
    (
        "recurrent_cell_backward",
        "(Tensor[] gradients, Tensor[] kept, int width) -> (Tensor, Tensor)",
        _cell_backward,
    ),
):
    _LIBRARY.define(_name + _arguments)
    _LIBRARY.impl(_name, _shapes, "Meta")


def _is_plain(args: Sequence[Any]) -> bool:
    """Tell whether a recurrence has sequences of one length, and a state as wide as each of its gates."""
    weights, has_biases = args[2:4]
    if not isinstance(has_biases, bool):
        return False
    return bool(len(weights) == (4 if has_biases else 2) * args[4] * (1 + args[7]))
