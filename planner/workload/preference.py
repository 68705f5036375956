"""Direct preference optimisation: a pair of sequences per sample, for the policy and a frozen reference.

Rafailov et al., 2023: the loss compares the log-probabilities that both models give to the chosen and to
the rejected sequence. A layer of the policy and the same layer of the reference share a stage.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from planner.units import Bytes, Flops
from planner.workload.frozen import FrozenLayer, LayerAround
from planner.workload.layers import Cut
from planner.workload.operators import CollectivePass, Operator
from planner.workload.weights import Holdings, holdings, step_flops_per_sample

PAIR: Final = 2
"""Sequences of a sample: the chosen one and the rejected one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreferenceLayer(LayerAround):
    """A layer of the policy, and after it the same layer of the reference, forward only.

    The reference is the policy's own base with its adapters off where it ``shares_weights``.
    """

    reference: FrozenLayer
    shares_weights: bool = False

    @property
    def parameters(self) -> int:
        """Those of both models."""
        return self.layer.parameters + (0 if self.shares_weights else self.reference.parameters)

    def local_parameters(self, cut: Cut) -> int:
        """Return those of both models."""
        own = self.layer.local_parameters(cut)
        return own + (0 if self.shares_weights else self.reference.local_parameters(cut))

    def local_expert_parameters(self, cut: Cut) -> int:
        """Return those of both models' experts."""
        own = self.layer.local_expert_parameters(cut)
        return own + (0 if self.shares_weights else self.reference.local_expert_parameters(cut))

    def holdings(self, cut: Cut) -> Holdings:
        """Return what one device holds of both models."""
        own = holdings(self.layer, cut)
        return own if self.shares_weights else own + self.reference.holdings(cut)

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch of pairs on one device, in forward order."""
        pairs = replace(cut, micro_batch_size=PAIR * cut.micro_batch_size)
        policy = self.layer.operators(pairs)
        return (*policy, *_as_reference(self.reference.operators(pairs)))

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return what goes to the next layer: the reference's goes forward alone, so half of it counts."""
        pairs = replace(cut, micro_batch_size=PAIR * cut.micro_batch_size)
        return self.layer.output_bytes(pairs) + self.reference.output_bytes(pairs) / 2

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return those of both models, over both sequences."""
        policy = self.layer.forward_flops_per_sample(sequence_length)
        return PAIR * (policy + self.reference.forward_flops_per_sample(sequence_length))

    def step_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return the policy's step and the reference's forward pass, over both sequences."""
        policy = step_flops_per_sample(self.layer, sequence_length)
        return PAIR * (policy + self.reference.forward_flops_per_sample(sequence_length))


def _as_reference(operators: tuple[Operator, ...]) -> Iterator[Operator]:
    """Yield operators under names of their own."""
    for op in operators:
        if isinstance(op, CollectivePass) and op.partner is not None:
            yield replace(op, name=f"reference_{op.name}", partner=f"reference_{op.partner}")
        else:
            yield replace(op, name=f"reference_{op.name}")
