"""A mixture of experts: router, dispatch of tokens, grouped products, combination, shared experts.

Letters: T tokens of the tensor-parallel group, t tensor parallel, h hidden, f width of an expert, E
experts, k experts per token, p expert parallel, q expert tensor parallel. Each rank of a tensor-parallel
group routes its own T / t tokens: its shard with sequence parallel, a slice of what all of them hold
without, which is gathered afterwards (DeepSpeed-MoE, Rajbhandari et al., 2022).
Source of dispatch, and of the probabilities that multiply inside the activation: Megatron-Core's
all-to-all dispatcher.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Final

from planner.units import Bytes, Flops
from planner.workload.branches import BranchInput
from planner.workload.dispatch import EXPERT_AXIS, EXPERT_TENSOR_AXIS, Dispatch, slice_gathers
from planner.workload.layers import Cut, Split
from planner.workload.mlp import Mlp
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator, SavedTensor
from planner.workload.passes import gate_tensors
from planner.workload.sizes import UnfitValue, require_flag, require_size, require_size_or_none
from planner.workload.tensor_parallel import AXIS

SCORE_BYTES: Final = 4 + 4 + 1
"""Scores and probabilities in FP32, and the map of chosen experts: per token and expert."""
ROUTER_BYTES: Final = 4
"""A router decides in FP32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Experts:
    """``experts`` MLPs of width ``ffn``, ``top_k`` of which work on a token, and perhaps one for all tokens.

    ``shared_ffn`` is the width of what works on every token (0 for none), ``shared_gate`` one more score
    for it. ``bias`` belongs to the experts, ``router_bias`` to the router; ``correction_bias`` balances
    loads and is no parameter. With a ``latent`` width tokens are brought to it before they are sent.
    """

    label: ClassVar[str] = "moe"
    module: ClassVar[Module] = Module.MOE

    hidden: int
    experts: int
    top_k: int
    ffn: int
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    correction_bias: bool = False
    shared_ffn: int = 0
    shared_gate: bool = False
    latent: int | None = None

    def __post_init__(self) -> None:
        for name in ("hidden", "experts", "top_k", "ffn"):
            require_size(name, getattr(self, name))
        for name in ("gated", "bias", "router_bias", "correction_bias", "shared_gate"):
            require_flag(name, getattr(self, name))
        require_size("shared_ffn", self.shared_ffn, smallest=0)
        require_size_or_none("latent", self.latent)
        if self.top_k > self.experts:
            raise UnfitValue(
                "top_k", f"({self.top_k}) must be at most the number of experts ({self.experts})"
            )

    @property
    def has_output_bias(self) -> bool:
        """False: the biases of experts are added before tokens come back."""
        return False

    @property
    def parameters(self) -> int:
        """Router, all experts, shared experts."""
        shared = self._shared.parameters if self._shared else 0
        return self._common_parameters + shared + self.experts * self._expert_parameters(1)

    def local_parameters(self, cut: Cut) -> int:
        """Return the router, which is replicated, the device's experts, and its share of the shared ones."""
        shared = self._shared.local_parameters(cut) if self._shared else 0
        return self._common_parameters + shared + self.local_expert_parameters(cut)

    def local_expert_parameters(self, cut: Cut) -> int:
        """Return the parameters of the device's experts, each split over expert tensor parallel."""
        return self._local_experts(cut) * self._expert_parameters(cut.expert_tensor_parallel)

    @property
    def idle_parameters(self) -> int:
        """Parameters of the experts that a token is not sent to."""
        return (self.experts - self.top_k) * self._expert_parameters(1)

    @property
    def buffers(self) -> int:
        """The correction bias of the router."""
        return self.experts * self.correction_bias

    @property
    def splits(self) -> tuple[Split, ...]:
        """Experts over expert parallel, their width over expert tensor parallel, the shared width."""
        shared = (Split(name="shared expert width", pieces=self.shared_ffn, axis=AXIS),)
        return (
            Split(name="experts", pieces=self.experts, axis=EXPERT_AXIS),
            Split(name="expert width", pieces=self.ffn, axis=EXPERT_TENSOR_AXIS),
            *(shared if self.shared_ffn else ()),
        )

    def forward_flops(self, sequence_length: int, *, memory_length: int) -> Flops:
        """Return 2 s per weight that works on a token: router, k experts, shared experts."""
        routed = self.top_k * self._width * (self._up_columns(1) + self.ffn)
        weights = self.hidden * self.experts + routed + 2 * self._latent_weights
        flops = 2.0 * sequence_length * weights
        shared = self._shared
        if shared is None:
            return flops
        return flops + shared.forward_flops(sequence_length, memory_length=memory_length)

    def operators(self, cut: Cut, source: BranchInput) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        sent = Dispatch(experts=self.experts, top_k=self.top_k, width=self._width, cut=cut)
        return (
            self._router_product(sent, source),
            self._router_pass(sent),
            *self._latent_product("moe_latent_down", sent, to_latent=True),
            *sent.out(),
            *self._expert_operators(sent),
            *sent.back(),
            *self._latent_product("moe_latent_up", sent, to_latent=False),
            *slice_gathers(self.hidden, cut),
            *self._shared_operators(cut, source),
        )

    def _router_product(self, sent: Dispatch, source: BranchInput) -> MatrixProduct:
        return MatrixProduct(
            name="router",
            module=self.module,
            rows=sent.own_tokens,
            columns=self.experts,
            inner=self.hidden,
            saved=source.saved("router_input", hidden=self.hidden, cut=sent.cut, reads_narrow=False),
        )

    def _router_pass(self, sent: Dispatch) -> MemoryPass:
        """Scores, choice and probabilities, each read and written once."""
        scores = sent.own_tokens * self.experts
        return MemoryPass(
            name="router_choice",
            module=self.module,
            kind="softmax",
            forward_bytes=4 * ROUTER_BYTES * scores,
            backward_bytes=4 * ROUTER_BYTES * scores,
            saved=(SavedTensor(name="router_scores", size_bytes=SCORE_BYTES * scores, made_by=self.module),),
        )

    def _expert_operators(self, sent: Dispatch) -> tuple[Operator, ...]:
        """Up, activation and down of the device's experts, one matrix after the other."""
        columns = self._up_columns(sent.cut.expert_tensor_parallel)
        inner = self.ffn // sent.cut.expert_tensor_parallel
        return (
            self._grouped("experts_up", sent, columns=columns, inner=self._width, made_by=Module.MOE),
            self._activation_pass(sent, columns=columns, width=inner),
            self._grouped(
                "experts_down", sent, columns=self._width, inner=inner, made_by=Module.MOE_ACTIVATION
            ),
        )

    def _grouped(
        self, name: str, sent: Dispatch, *, columns: int, inner: int, made_by: Module
    ) -> MatrixProduct:
        width = sent.cut.element_bytes
        kept_bytes = sent.row_bytes(inner) * sent.cut.keeping.input_bytes(width) / width
        return MatrixProduct(
            name=name,
            module=self.module,
            rows=sent.rows_per_expert,
            columns=columns,
            inner=inner,
            count=sent.local_experts,
            saved=(SavedTensor(name=f"{name}_input", size_bytes=kept_bytes, made_by=made_by),),
        )

    def _activation_pass(self, sent: Dispatch, *, columns: int, width: int) -> MemoryPass:
        """As in an MLP; the token's probability multiplies inside. A bias gradient sums dx once more."""
        input_bytes, output_bytes = sent.row_bytes(columns), sent.row_bytes(width)
        bias_bytes = input_bytes if self.bias else 0
        return MemoryPass(
            name="experts_activation",
            module=Module.MOE_ACTIVATION,
            kind="gated_activation" if self.gated else "gelu",
            forward_bytes=input_bytes + output_bytes,
            backward_bytes=2 * input_bytes + output_bytes + bias_bytes,
            saved=(
                SavedTensor(name="experts_activation_input", size_bytes=input_bytes, made_by=Module.MOE),
                *gate_tensors(
                    "experts_activation",
                    size_bytes=output_bytes,
                    gated=self.gated,
                    cut=sent.cut,
                    made_by=Module.MOE_ACTIVATION,
                ),
            ),
        )

    def _latent_product(self, name: str, sent: Dispatch, *, to_latent: bool) -> tuple[MatrixProduct, ...]:
        """Return the map to or from the latent width; on the way in its input is the router's."""
        if self.latent is None:
            return ()
        inner, columns = (self.hidden, self.latent) if to_latent else (self.latent, self.hidden)
        size_bytes = sent.cut.element_bytes * sent.own_tokens * inner
        saved = SavedTensor(name=f"{name}_input", size_bytes=size_bytes, made_by=self.module)
        return (
            MatrixProduct(
                name=name,
                module=self.module,
                rows=sent.own_tokens,
                columns=columns,
                inner=inner,
                saved=() if to_latent else (saved,),
            ),
        )

    def _shared_operators(self, cut: Cut, source: BranchInput) -> tuple[Operator, ...]:
        """Return the shared experts, their gate, and the sum with what the routed ones made."""
        shared = self._shared
        if shared is None:
            return ()
        again = BranchInput(made_by=source.made_by, is_saved=True)
        width = cut.element_bytes * cut.sharded_tokens * self.hidden
        total = MemoryPass(
            name="moe_sum", module=self.module, kind="add", forward_bytes=3 * width, backward_bytes=3 * width
        )
        operators = shared.named_operators(cut, again, label="shared", module=Module.SHARED_EXPERTS)
        return (*operators, *self._shared_gate_pass(width), total)

    def _shared_gate_pass(self, width: Bytes) -> tuple[MemoryPass, ...]:
        """Multiply the output by a score of the input: forward moves three tensors, backward five."""
        if not self.shared_gate:
            return ()
        made_by = Module.SHARED_EXPERTS
        return (
            MemoryPass(
                name="shared_gate",
                module=made_by,
                kind="gated_activation",
                forward_bytes=3 * width,
                backward_bytes=5 * width,
                saved=(SavedTensor(name="shared_output", size_bytes=width, made_by=made_by),),
            ),
        )

    @property
    def _shared(self) -> Mlp | None:
        """The shared experts as one MLP as wide as all of them."""
        if not self.shared_ffn:
            return None
        return Mlp(hidden=self.hidden, ffn=self.shared_ffn, gated=self.gated)

    @property
    def _width(self) -> int:
        """Channels that an expert reads and writes."""
        return self.latent or self.hidden

    @property
    def _latent_weights(self) -> int:
        return self.hidden * self.latent if self.latent else 0

    def _up_columns(self, expert_tensor_parallel: int) -> int:
        return (2 if self.gated else 1) * self.ffn // expert_tensor_parallel

    def _local_experts(self, cut: Cut) -> int:
        return ceil(self.experts / cut.expert_parallel)

    def _expert_parameters(self, expert_tensor_parallel: int) -> int:
        columns = self._up_columns(expert_tensor_parallel)
        weights = self._width * (columns + self.ffn // expert_tensor_parallel)
        return weights + self.bias * (columns + self._width)

    @property
    def _common_parameters(self) -> int:
        """Router and latent maps, which every device holds whole."""
        router = self.experts * (self.hidden + self.router_bias)
        return router + self.shared_gate * self.hidden + 2 * self._latent_weights
