"""A block: branches with their norms and residual sums, the layer that models repeat."""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from planner.units import Bytes, Flops
from planner.workload.branches import Branch, BranchInput
from planner.workload.cross_attention import CrossAttention
from planner.workload.dispatch import EXPERT_AXIS
from planner.workload.experts import Experts
from planner.workload.latent_attention import LatentAttention
from planner.workload.layers import DECODER, Cut, Split
from planner.workload.operators import MemoryPass, Module, Operator
from planner.workload.passes import Norm, norm_pass, residual_pass
from planner.workload.sizes import UnfitValue, require_probability, require_word
from planner.workload.streams import JOB, Stream

MOST_BRANCHES: Final = 1 << 10
"""Branches cut in some way whose operators are kept."""


class Arrangement(StrEnum):
    """Where the norms of a block stand.

    ``pre``: before every branch. ``post``: after every residual sum (BERT). ``sandwich``: before every
    branch and after it, before the sum (Gemma 2). ``parallel``: all branches read the block's input,
    each through a norm of its own (GPT-NeoX). ``shared``: all through one norm (GPT-J).
    """

    PRE = "pre"
    POST = "post"
    SANDWICH = "sandwich"
    PARALLEL = "parallel"
    SHARED = "shared"

    def norms(self, branches: int) -> int:
        """Return how many norms a block of so many branches has."""
        return {Arrangement.SANDWICH: 2 * branches, Arrangement.SHARED: 1}.get(self, branches)


ALONE: Final = frozenset({Arrangement.POST, Arrangement.SHARED})
"""Arrangements whose norms precede no single branch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockLayer:
    """Branches one after the other, or side by side; ``role`` is the kind that a plan calls it.

    ``dropout`` is that of every branch's output. Refuses branches of different widths with UnfitValue.
    """

    branches: tuple[Branch, ...]
    role: str = DECODER
    norm: Norm = Norm.RMS
    arrangement: Arrangement = Arrangement.PRE
    dropout: float = 0.0
    stream: Stream = JOB

    def __post_init__(self) -> None:
        if not self.branches:
            raise UnfitValue("branches", "must be at least one")
        require_word("norm", self.norm, Norm)
        require_word("arrangement", self.arrangement, Arrangement)
        require_probability("dropout", self.dropout)
        for branch in self.branches:
            if branch.hidden != self.hidden:
                message = f"must all read {self.hidden} channels, one reads {branch.hidden}"
                raise UnfitValue("branches", message)

    @property
    def kind(self) -> str:
        """Its role: decoder, encoder, vision."""
        return self.role

    @property
    def hidden(self) -> int:
        """Width of what it reads and writes."""
        return self.branches[0].hidden

    @property
    def parameters(self) -> int:
        """Parameters of the whole layer."""
        return self._norm_parameters + sum(branch.parameters for branch in self.branches)

    def local_parameters(self, cut: Cut) -> int:
        """Return what one device holds; norms are replicated."""
        return self._norm_parameters + sum(branch.local_parameters(cut) for branch in self.branches)

    def local_expert_parameters(self, cut: Cut) -> int:
        """Return those of the local parameters that are split over expert parallel."""
        return sum(branch.local_expert_parameters(cut) for branch in self.branches)

    def tied_local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return none: nothing is tied."""
        return 0

    @property
    def idle_parameters(self) -> int:
        """Parameters that one token leaves unused."""
        return sum(branch.idle_parameters for branch in self.branches)

    @property
    def buffers(self) -> int:
        """Numbers that the branches keep and nothing trains."""
        return sum(branch.buffers for branch in self.branches)

    @property
    def splits(self) -> tuple[Split, ...]:
        """What the parallel degrees have to divide."""
        return tuple(split for branch in self.branches for split in branch.splits)

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return useful forward FLOP of the branches; the job's length is also that of the encoder."""
        tokens = self.stream.tokens(sequence_length)
        flops = (branch.forward_flops(tokens, memory_length=sequence_length) for branch in self.branches)
        return self.stream.sequences * sum(flops)

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of its output, and of the encoder's where a branch attends to that."""
        own = self.stream.cut(cut)
        reads_memory = any(isinstance(branch, CrossAttention) for branch in self.branches)
        return own.activation_bytes(self.hidden) + (
            cut.activation_bytes(self.hidden) if reads_memory else 0.0
        )

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order; none without images."""
        own = self.stream.cut(cut)
        if not own.micro_batch_size:
            return ()
        rest = replace(own, expert_parallel=1, expert_tensor_parallel=1, expert_imbalance=1.0)
        return tuple(
            operator
            for place, branch in enumerate(self.branches)
            for operator in _branch_operators(self, place, own if _spreads_experts(branch) else rest)
        )

    def branch_operators(self, branch: Branch, cut: Cut, *, is_first: bool) -> tuple[Operator, ...]:
        """Return the operators of one branch, with its norms and its residual sum."""
        residual = residual_pass(
            f"{branch.label}_residual",
            hidden=self.hidden,
            cut=cut,
            dropout=self.dropout,
            has_bias=branch.has_output_bias,
        )
        inner = branch.operators(cut, self._source(branch, cut, is_first=is_first))
        before, after = self._norms(branch, cut, is_first=is_first)
        if self.arrangement is Arrangement.POST:
            return (*inner, residual, *after)
        return (*before, *inner, *after, residual)

    def _source(self, branch: Branch, cut: Cut, *, is_first: bool) -> BranchInput:
        """Return what a branch reads: a norm's output, or in a post-norm block its own input."""
        if self.arrangement is Arrangement.POST and is_first:
            return BranchInput(made_by=None)
        made_by = self._norm_module(branch, cut)
        return BranchInput(made_by=made_by, is_saved=self.arrangement is Arrangement.SHARED and not is_first)

    def _norm_module(self, branch: Branch, cut: Cut) -> Module:
        """Return the module of the norm before a branch: where kernels join it to a product no own one."""
        stands_alone = isinstance(branch, LatentAttention | Experts) or self.arrangement in ALONE
        if stands_alone or not cut.keeping.joins_norms:
            return Module.NORM
        return Module.MLP_NORM if branch.module is Module.MLP else Module.INNER_NORM

    def _norms(
        self, branch: Branch, cut: Cut, *, is_first: bool
    ) -> tuple[tuple[MemoryPass, ...], tuple[MemoryPass, ...]]:
        """Return the norms before and after a branch (after its residual sum in a post-norm block)."""

        def norm(
            name: str, made_by: Module | None, *, saves: bool = True, module: Module = Module.NORM
        ) -> tuple[MemoryPass, ...]:
            own = norm_pass(
                name, self.norm, hidden=self.hidden, cut=cut, made_by=made_by, saves=saves, module=module
            )
            return (own,)

        name, stream = f"{branch.label}_norm", None if is_first else Module.RESIDUAL
        module = self._norm_module(branch, cut)
        match self.arrangement:
            case Arrangement.PRE:
                return norm(name, stream, module=module), ()
            case Arrangement.SANDWICH:
                after = norm(f"{branch.label}_post_norm", branch.module)
                return norm(name, stream, module=module), after
            case Arrangement.POST:
                return (), norm(name, Module.RESIDUAL)
            case Arrangement.PARALLEL:
                return norm(name, None, saves=is_first, module=module), ()
            case Arrangement.SHARED:
                return norm(name, None) if is_first else (), ()

    @property
    def _norm_parameters(self) -> int:
        count = self.arrangement.norms(len(self.branches))
        return count * self.norm.parameters_per_channel * self.hidden


def _spreads_experts(branch: Branch) -> bool:
    return any(split.axis == EXPERT_AXIS for split in branch.splits)


@lru_cache(maxsize=MOST_BRANCHES)
def _branch_operators(block: BlockLayer, place: int, cut: Cut) -> tuple[Operator, ...]:
    """Return the operators of a branch: the same however the experts of another one are spread."""
    return block.branch_operators(block.branches[place], cut, is_first=place == 0)
