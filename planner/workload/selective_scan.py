"""Mamba (Gu and Dao, 2023): every channel has a state of its own, scanned token by token in one kernel.

Letters: T tokens of one device, d inner channels, N the state's width, r the rank of the step sizes.
"""

from dataclasses import dataclass
from typing import ClassVar

from planner.units import Flops
from planner.workload.branches import BranchInput, SplitBranch
from planner.workload.layers import Cut, Split
from planner.workload.mixers import convolution_pass, local_bytes, out_product, saved, sequence_exchange
from planner.workload.operators import (
    Collective,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Phase,
)
from planner.workload.sizes import require_flag, require_size
from planner.workload.tensor_parallel import (
    AXIS,
    entering_collectives,
    leaving_collectives,
    tensor_collective,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectiveScan(SplitBranch):
    """A product in, a convolution, what selects, the scan, a product out.

    What selects is the step sizes and the maps to and from the state, all made of the channels.
    ``bias`` is that of the products in and out; ``norms`` stand on what selects (Jamba).
    """

    label: ClassVar[str] = "mixer"
    module: ClassVar[Module] = Module.MIXER

    hidden: int
    inner: int
    state: int
    rank: int
    kernel: int = 4
    bias: bool = False
    convolution_bias: bool = True
    norms: bool = False

    def __post_init__(self) -> None:
        for name in ("hidden", "inner", "state", "rank", "kernel"):
            require_size(name, getattr(self, name))
        for name in ("bias", "convolution_bias", "norms"):
            require_flag(name, getattr(self, name))

    @property
    def has_output_bias(self) -> bool:
        """Whether the product out has a bias."""
        return self.bias

    @property
    def splits(self) -> tuple[Split, ...]:
        """Inner channels."""
        return (Split(name="state-space channels", pieces=self.inner, axis=AXIS),)

    def forward_flops(self, sequence_length: int, *, memory_length: int) -> Flops:  # noqa: ARG002 - a Branch
        """Return 2 s per weight, and 4 N per token and channel: write the state and read it."""
        weights = self.inner * (3 * self.hidden + self._selectors + self.rank)
        return 2.0 * sequence_length * (weights + 2 * self.inner * self.state)

    def operators(self, cut: Cut, source: BranchInput) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        inner = self.inner // cut.tensor_parallel
        return (
            *entering_collectives(product="mixer_in", module=self.module, hidden=self.hidden, cut=cut),
            MatrixProduct(
                name="mixer_in",
                module=self.module,
                rows=cut.local_tokens,
                columns=2 * inner,
                inner=self.hidden,
                saved=source.saved("mixer_in_input", hidden=self.hidden, cut=cut),
            ),
            *sequence_exchange("mixer_in_exchange", 2 * inner, cut),
            convolution_pass(inner, cut),
            *self._selecting_operators(inner, cut),
            self._scan_pass(inner, cut),
            *sequence_exchange("mixer_out_exchange", inner, cut),
            out_product(inner, hidden=self.hidden, cut=cut),
            *leaving_collectives(product="mixer_out", module=self.module, hidden=self.hidden, cut=cut),
        )

    def _selecting_operators(self, inner: int, cut: Cut) -> tuple[Operator, ...]:
        """From all channels to a few numbers per token, which are summed over devices, and to step sizes."""
        tokens = cut.local_tokens
        return (
            MatrixProduct(
                name="select",
                module=self.module,
                rows=tokens,
                columns=self._selectors,
                inner=inner,
                saved=(saved("select_input", local_bytes(inner, cut)),),
            ),
            *self._selector_sums(cut),
            *self._norm_pass(cut),
            MatrixProduct(
                name="steps",
                module=self.module,
                rows=tokens,
                columns=inner,
                inner=self.rank,
                saved=(saved("steps_input", local_bytes(self.rank, cut)),),
            ),
        )

    def _selector_sums(self, cut: Cut) -> tuple[CollectivePass, ...]:
        if cut.tensor_parallel == 1:
            return ()
        return tuple(
            tensor_collective(
                f"select_{phase}_reduce",
                self.module,
                Collective.ALL_REDUCE,
                phase=phase,
                payload_bytes=local_bytes(self._selectors, cut),
            )
            for phase in (Phase.FORWARD, Phase.BACKWARD)
        )

    def _norm_pass(self, cut: Cut) -> tuple[MemoryPass, ...]:
        if not self.norms:
            return ()
        width = local_bytes(self._selectors, cut)
        return (
            MemoryPass(
                name="select_norm",
                module=self.module,
                kind="rms_norm",
                forward_bytes=2 * width,
                backward_bytes=3 * width,
                saved=(saved("select_norm_input", width),),
            ),
        )

    def _scan_pass(self, inner: int, cut: Cut) -> MemoryPass:
        """Read channels, steps, gate and what selects, write the output; states never leave the kernel.

        Backward scans again from what was read.
        """
        width, maps = local_bytes(inner, cut), local_bytes(2 * self.state, cut)
        return MemoryPass(
            name="scan",
            module=self.module,
            kind="scan",
            forward_bytes=4 * width + maps,
            backward_bytes=7 * width + 2 * maps,
            saved=(saved("scan_steps", width), saved("mixer_gate", width), saved("scan_maps", maps)),
        )

    @property
    def _selectors(self) -> int:
        """Numbers per token: the step sizes' rank, and the maps to and from the state."""
        return self.rank + 2 * self.state

    def _parameters(self, *, tensor_parallel: int) -> int:
        """Return one device's share of the channels; norms and the bias after the sum are replicated."""
        inner = self.inner // tensor_parallel
        weights = inner * (3 * self.hidden + self._selectors + self.rank)
        per_channel = self.kernel + self.convolution_bias + self.state + 2  # decay, skip, step bias
        norms = self._selectors * self.norms
        return weights + inner * per_channel + norms + self.bias * (2 * inner + self.hidden)
