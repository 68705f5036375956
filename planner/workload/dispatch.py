"""How tokens reach the experts that they are sent to, and how results come back.

Letters: T tokens of the tensor-parallel group, t tensor parallel, k experts per token, p expert parallel,
q expert tensor parallel. Source: Megatron-Core's all-to-all dispatcher, whose permutations are fused.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

from planner.units import Bytes
from planner.workload.layers import Cut
from planner.workload.operators import Collective, CollectivePass, MemoryPass, Module, Operator, Phase
from planner.workload.tensor_parallel import tensor_collective

EXPERT_AXIS: Final = "expert_parallel"
EXPERT_TENSOR_AXIS: Final = "expert_tensor_parallel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Dispatch:
    """The tokens that one device sends and its experts receive; ``width`` channels of each.

    ``own_tokens`` are those that the device routes: T / t, a shard or a slice of what its group holds.
    """

    experts: int
    top_k: int
    width: int
    cut: Cut

    @property
    def own_tokens(self) -> int:
        """Tokens that the device routes: T / t."""
        return ceil(self.cut.local_tokens / self.cut.tensor_parallel)

    @property
    def copies(self) -> int:
        """Tokens that it sends: one for each expert that works on it."""
        return self.own_tokens * self.top_k

    @property
    def local_experts(self) -> int:
        """Experts on the device: E / p."""
        return ceil(self.experts / self.cut.expert_parallel)

    @property
    def rows_per_expert(self) -> int:
        """Tokens of each expert on the busiest device: every rank of its expert-tensor group sends some."""
        received = self.copies * self.cut.expert_tensor_parallel * self._imbalance
        return ceil(received / self.local_experts)

    @property
    def rows(self) -> int:
        """Tokens that the device's experts work on."""
        return self.rows_per_expert * self.local_experts

    def row_bytes(self, width: int) -> Bytes:
        """Return the bytes of what the experts work on, so many channels wide."""
        return self.cut.element_bytes * self.rows * width

    def out(self) -> Iterator[Operator]:
        """Yield what brings tokens to their experts."""
        yield self._pass("moe_permute", read=self.copies, written=self.copies)
        yield from self._exchange("moe_dispatch")
        yield from self._tensor_exchange("moe_dispatch", Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
        if self._sorts:
            yield self._pass("moe_sort", read=self.rows, written=self.rows)

    def back(self) -> Iterator[Operator]:
        """Yield what brings results back and adds those of one token up."""
        if self._sorts:
            yield self._pass("moe_unsort", read=self.rows, written=self.rows)
        yield from self._tensor_exchange("moe_combine", Collective.REDUCE_SCATTER, Collective.ALL_GATHER)
        yield from self._exchange("moe_combine")
        yield self._pass("moe_unpermute", read=self.copies, written=self.own_tokens)

    @property
    def _imbalance(self) -> float:
        """Load of the busiest rank over the mean; one rank alone has them all."""
        return self.cut.expert_imbalance if self.cut.expert_parallel > 1 else 1.0

    @property
    def _sorts(self) -> bool:
        """What arrives from several ranks for several experts is sorted by expert."""
        return self.cut.expert_parallel > 1 and self.local_experts > 1

    def _pass(self, name: str, *, read: int, written: int) -> MemoryPass:
        moved = self.cut.element_bytes * self.width * (read + written)
        return MemoryPass(
            name=name, module=Module.MOE, kind="permute", forward_bytes=moved, backward_bytes=moved
        )

    def _exchange(self, name: str) -> Iterator[CollectivePass]:
        """Yield the all-to-all over expert parallel, and its mirror for gradients."""
        if self.cut.expert_parallel == 1:
            return
        payload = self.cut.element_bytes * self.copies * self.width * self._imbalance
        for phase, suffix in ((Phase.FORWARD, ""), (Phase.BACKWARD, "_gradient")):
            yield CollectivePass(
                name=f"{name}{suffix}",
                module=Module.MOE,
                operation=Collective.ALL_TO_ALL,
                payload_bytes=payload,
                axis=EXPERT_AXIS,
                phase=phase,
            )

    def _tensor_exchange(
        self, name: str, forward: Collective, backward: Collective
    ) -> Iterator[CollectivePass]:
        """Yield what joins the tokens of an expert-tensor group, or splits their sums, and its mirror."""
        if self.cut.expert_tensor_parallel == 1:
            return
        for operation, phase, suffix in (
            (forward, Phase.FORWARD, ""),
            (backward, Phase.BACKWARD, "_gradient"),
        ):
            yield CollectivePass(
                name=f"{name}_tensor{suffix}",
                module=Module.MOE,
                operation=operation,
                payload_bytes=self.row_bytes(self.width),
                axis=EXPERT_TENSOR_AXIS,
                phase=phase,
            )


def slice_gathers(hidden: int, cut: Cut) -> tuple[CollectivePass, ...]:
    """Return what gives every rank of a tensor-parallel group the results of all its tokens.

    With sequence parallel each keeps its own shard. Backward gathers the gradient of the input's slices.
    """
    if cut.tensor_parallel == 1 or cut.sequence_parallel:
        return ()
    payload = float(cut.element_bytes * cut.local_tokens * hidden)
    return tuple(
        tensor_collective(name, Module.MOE, Collective.ALL_GATHER, phase=phase, payload_bytes=payload)
        for name, phase in (
            ("moe_output_gather", Phase.FORWARD),
            ("moe_input_gradient_gather", Phase.BACKWARD),
        )
    )
