"""Mamba-2 (Dao and Gu, "Transformers are SSMs", 2024): heads with one decay each, worked through in chunks.

Letters: T tokens of one device, C a chunk, N the state's width, P a head's width, G groups of heads that
share the maps to and from the state. Source of the products: the chunked kernels of mamba-ssm.
"""

from dataclasses import dataclass
from typing import ClassVar

from planner.units import Flops
from planner.workload.branches import BranchInput, SplitBranch
from planner.workload.layers import Cut, Split
from planner.workload.mixers import (
    chunk_product,
    convolution_pass,
    gated_norm_pass,
    local_bytes,
    num_chunks,
    out_product,
    saved,
    sequence_exchange,
)
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator
from planner.workload.sizes import require_divisible, require_flag, require_size
from planner.workload.tensor_parallel import AXIS, entering_collectives, leaving_collectives

STATE_BYTES = 4
"""States between chunks, and scores within them, are kept in FP32."""
FORWARD_STATE_PASSES = 1 + 1 + 0.5 + 0.5
"""Chunks write their states in FP32; they are read and passed on in two bytes, which every chunk reads."""
BACKWARD_STATE_PASSES = 1 + (1 + 1) + 1 + (2 + 0.5 + 0.5) + 0.5 + 0.5
"""States again, passed on in FP32; their gradients; both read, gradients passed back, both cast for
products; read for the gradients of values and of the maps to and from the state."""
FORWARD_OPERAND_PASSES = 2
"""Values and both maps are read for the state or the scores, and for the output."""
BACKWARD_VALUE_PASSES = 5 + 5 + 1
"""Values, and gradients of outputs, are read by five kernels each: for states, for gradients of values, of
either map, of decays. One gradient is written."""
BACKWARD_MAP_PASSES = 4.5 + 2 + 2 + 1
"""Maps are read five and four times; their gradients are summed over heads in FP32, read, and written."""
FORWARD_SCORE_PASSES, BACKWARD_SCORE_PASSES = 2, 6
"""Scores of a chunk are kept in FP32: made again, read twice; their gradients made, and read twice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateSpace(SplitBranch):
    """One product in, a convolution, the scan, a gated norm, one product out.

    ``bias`` is that of both products.
    """

    label: ClassVar[str] = "mixer"
    module: ClassVar[Module] = Module.MIXER

    hidden: int
    heads: int
    head_dim: int
    state: int
    groups: int = 1
    kernel: int = 4
    chunk: int = 256
    bias: bool = False
    convolution_bias: bool = True

    def __post_init__(self) -> None:
        for name in ("hidden", "heads", "head_dim", "state", "groups", "kernel", "chunk"):
            require_size(name, getattr(self, name))
        require_flag("bias", self.bias)
        require_flag("convolution_bias", self.convolution_bias)
        require_divisible("heads", self.heads, by_name="groups", by=self.groups)

    @property
    def has_output_bias(self) -> bool:
        """Whether the product out has a bias."""
        return self.bias

    @property
    def splits(self) -> tuple[Split, ...]:
        """Heads and groups, which may be replicated."""
        return (
            Split(name="state-space heads", pieces=self.heads, axis=AXIS),
            Split(name="state-space groups", pieces=self.groups, axis=AXIS, replicate=True),
        )

    def forward_flops(self, sequence_length: int, *, memory_length: int) -> Flops:  # noqa: ARG002 - a Branch
        """Return 2 s per weight, and 4 N P per token and head: write the state and read it."""
        weights = self.hidden * (self._in_columns(1) + self.heads * self.head_dim)
        scan = 2 * self.heads * self.state * self.head_dim
        return 2.0 * sequence_length * (weights + scan)

    def operators(self, cut: Cut, source: BranchInput) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        width = self.heads // cut.tensor_parallel * self.head_dim
        columns = self._in_columns(cut.tensor_parallel)
        return (
            *entering_collectives(product="mixer_in", module=self.module, hidden=self.hidden, cut=cut),
            MatrixProduct(
                name="mixer_in",
                module=self.module,
                rows=cut.local_tokens,
                columns=columns,
                inner=self.hidden,
                saved=source.saved("mixer_in_input", hidden=self.hidden, cut=cut),
            ),
            *sequence_exchange("mixer_in_exchange", columns, cut),
            convolution_pass(self._mixed_channels(cut.tensor_parallel), cut),
            *self._scan_operators(cut),
            gated_norm_pass(width, cut),
            *sequence_exchange("mixer_out_exchange", width, cut),
            out_product(width, hidden=self.hidden, cut=cut),
            *leaving_collectives(product="mixer_out", module=self.module, hidden=self.hidden, cut=cut),
        )

    def _scan_operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Scores of a chunk by group, then by head: what stays within it, and the state in and out."""
        chunks, size = num_chunks(self.chunk, cut), self.chunk
        heads, groups = self.heads // cut.tensor_parallel, self._local_groups(cut.tensor_parallel)
        width, state = self.head_dim, self.state
        return (
            self._scan_pass(heads, chunks, cut),
            chunk_product("scan_scores", rows=size, columns=size, inner=state, count=chunks * groups),
            chunk_product("scan_within", rows=size, columns=width, inner=size, count=chunks * heads),
            chunk_product("scan_state", rows=size, columns=width, inner=state, count=2 * chunks * heads),
        )

    def _scan_pass(self, heads: int, chunks: int, cut: Cut) -> MemoryPass:
        """Return what the kernels read and write, which share nothing but through memory.

        Kernels as in ``ssd_combined.py`` of mamba-ssm. Backward makes scores and states again; what it needs
        besides is the convolution's input, and the step sizes of the heads.
        """
        groups = self._local_groups(cut.tensor_parallel)
        values = local_bytes(heads * self.head_dim, cut)
        maps = local_bytes(2 * groups * self.state, cut)
        steps = local_bytes(heads, cut)
        states = STATE_BYTES * chunks * heads * self.head_dim * self.state
        scores = STATE_BYTES * chunks * groups * self.chunk**2
        return MemoryPass(
            name="scan",
            module=self.module,
            kind="scan",
            forward_bytes=FORWARD_OPERAND_PASSES * (values + maps)
            + steps
            + values
            + FORWARD_STATE_PASSES * states
            + FORWARD_SCORE_PASSES * scores,
            backward_bytes=BACKWARD_VALUE_PASSES * values
            + BACKWARD_MAP_PASSES * maps
            + 2 * steps
            + BACKWARD_STATE_PASSES * states
            + BACKWARD_SCORE_PASSES * scores,
            saved=(saved("scan_steps", steps),),
        )

    def _local_groups(self, tensor_parallel: int) -> int:
        """Return the groups of one device; with more devices than groups each is replicated."""
        return max(1, self.groups // tensor_parallel)

    def _mixed_channels(self, tensor_parallel: int) -> int:
        """Channels of values and of the maps to and from the state, which the convolution mixes."""
        width = self.heads * self.head_dim // tensor_parallel
        return width + 2 * self._local_groups(tensor_parallel) * self.state

    def _in_columns(self, tensor_parallel: int) -> int:
        """Return the columns of what the convolution mixes, the gate, and a step size per head."""
        heads = self.heads // tensor_parallel
        return self._mixed_channels(tensor_parallel) + heads * self.head_dim + heads

    def _parameters(self, *, tensor_parallel: int) -> int:
        """Return one device's share; surplus groups and the bias after the sum are replicated."""
        heads, columns = self.heads // tensor_parallel, self._in_columns(tensor_parallel)
        width = heads * self.head_dim
        weights = self.hidden * (columns + width)
        convolution = self._mixed_channels(tensor_parallel) * (self.kernel + self.convolution_bias)
        of_heads = 3 * heads  # step bias, decay, skip
        return weights + convolution + of_heads + width + self.bias * (columns + self.hidden)
