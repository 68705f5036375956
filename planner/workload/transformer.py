"""The decoder layer of a dense transformer: grouped-query self-attention and an MLP.

Letters: b micro-batch, s sequence, c context parallel, t tensor parallel, h hidden, f MLP width,
a heads, d head width, e bytes per element; T = b s / c tokens. Source of the saved tensors:
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4.
"""

from dataclasses import dataclass
from typing import ClassVar

from planner.units import Flops
from planner.workload.attention import LocalAttention, core_operators
from planner.workload.layers import Cut
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator, SavedTensor
from planner.workload.passes import Norm, norm_pass, residual_pass
from planner.workload.sizes import require_divisible, require_flag, require_probability, require_size
from planner.workload.tensor_parallel import entering_collectives, leaving_collectives


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderLayer:
    """One pre-norm block: norm, causal self-attention, residual, norm, MLP, residual.

    ``gated`` MLPs have three matrices (gate, up, down), others two. Refuses sizes that are not
    whole, not positive or absurd, and key heads that do not divide the heads, with ValueError.
    """

    kind: ClassVar[str] = "decoder"

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    norm: Norm = Norm.RMS
    gated: bool = True
    rotary: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("hidden", "ffn", "heads", "kv_heads", "head_dim"):
            require_size(name, getattr(self, name))
        for name in ("attention_dropout", "hidden_dropout"):
            require_probability(name, getattr(self, name))
        for name in ("gated", "rotary", "qkv_bias", "output_bias", "mlp_bias"):
            require_flag(name, getattr(self, name))
        require_divisible("heads", self.heads, by_name="kv_heads", by=self.kv_heads)

    @property
    def parameters(self) -> int:
        """Parameters of the whole layer."""
        return self._parameters(tensor_parallel=1)

    def local_parameters(self, cut: Cut) -> int:
        """Return one device's share; norms, biases after a sum and surplus key heads are replicated."""
        return self._parameters(tensor_parallel=cut.tensor_parallel)

    def tied_local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return none: nothing is tied."""
        return 0

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return 2 s per weight, and the causal half of 4 s^2 a d for the attention core."""
        width = self.heads * self.head_dim
        weights = self.hidden * (self._qkv_columns(1) + width + self._up_columns(1) + self.ffn)
        return 2.0 * sequence_length * weights + 2.0 * sequence_length**2 * width

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        return (*self._attention_operators(cut), *self._mlp_operators(cut))

    def _attention_operators(self, cut: Cut) -> tuple[Operator, ...]:
        module, hidden = Module.ATTENTION, self.hidden
        return (
            norm_pass("attention_norm", self.norm, hidden=hidden, cut=cut, made_by=None),
            *entering_collectives(product="qkv", module=module, hidden=hidden, cut=cut),
            self._qkv_product(cut),
            *self._rotary_pass(cut),
            *core_operators(self._local_attention(cut)),
            self._output_product(cut),
            *leaving_collectives(product="attention_output", module=module, hidden=hidden, cut=cut),
            self._residual("attention_residual", cut, has_bias=self.output_bias),
        )

    def _mlp_operators(self, cut: Cut) -> tuple[Operator, ...]:
        module, hidden = Module.MLP, self.hidden
        return (
            norm_pass("mlp_norm", self.norm, hidden=hidden, cut=cut, made_by=Module.RESIDUAL),
            *entering_collectives(product="mlp_up", module=module, hidden=hidden, cut=cut),
            self._up_product(cut),
            self._activation_pass(cut),
            self._down_product(cut),
            *leaving_collectives(product="mlp_down", module=module, hidden=hidden, cut=cut),
            self._residual("mlp_residual", cut, has_bias=self.mlp_bias),
        )

    def _qkv_product(self, cut: Cut) -> MatrixProduct:
        return MatrixProduct(
            name="qkv",
            module=Module.ATTENTION,
            rows=cut.local_tokens,
            columns=self._qkv_columns(cut.tensor_parallel),
            inner=self.hidden,
            saved=(self._normed("qkv_input", cut),),
        )

    def _rotary_pass(self, cut: Cut) -> tuple[MemoryPass, ...]:
        """Rotate Q and K: read and write them in either direction; nothing is saved but Q and K."""
        if not self.rotary:
            return ()
        attention = self._local_attention(cut)
        moved_bytes = 2 * (attention.query_bytes + attention.key_bytes)
        return (
            MemoryPass(
                name="rotary",
                module=Module.ATTENTION,
                kind="rotary",
                forward_bytes=moved_bytes,
                backward_bytes=moved_bytes,
            ),
        )

    def _output_product(self, cut: Cut) -> MatrixProduct:
        attention = self._local_attention(cut)
        core_output = SavedTensor(
            name="attention_output_input", size_bytes=attention.query_bytes, made_by=Module.CORE_ATTENTION
        )
        return MatrixProduct(
            name="attention_output",
            module=Module.ATTENTION,
            rows=cut.local_tokens,
            columns=self.hidden,
            inner=attention.heads * self.head_dim,
            saved=(core_output,),
        )

    def _up_product(self, cut: Cut) -> MatrixProduct:
        return MatrixProduct(
            name="mlp_up",
            module=Module.MLP,
            rows=cut.local_tokens,
            columns=self._up_columns(cut.tensor_parallel),
            inner=self.hidden,
            saved=(self._normed("mlp_up_input", cut),),
        )

    def _activation_pass(self, cut: Cut) -> MemoryPass:
        """Forward reads its input and writes f values; backward reads dy and the input and writes dx."""
        values = cut.element_bytes * cut.local_tokens
        input_bytes = values * self._up_columns(cut.tensor_parallel)
        output_bytes = values * (self.ffn // cut.tensor_parallel)
        bias_bytes = input_bytes if self.mlp_bias else 0  # the bias gradient sums dx once more
        return MemoryPass(
            name="mlp_activation",
            module=Module.MLP,
            kind="gated_activation" if self.gated else "gelu",
            forward_bytes=input_bytes + output_bytes,
            backward_bytes=2 * input_bytes + output_bytes + bias_bytes,
            saved=(SavedTensor(name="mlp_activation_input", size_bytes=input_bytes, made_by=Module.MLP),),
        )

    def _down_product(self, cut: Cut) -> MatrixProduct:
        inner = self.ffn // cut.tensor_parallel
        activated = SavedTensor(
            name="mlp_down_input",
            size_bytes=cut.element_bytes * cut.local_tokens * inner,
            made_by=Module.MLP,
        )
        return MatrixProduct(
            name="mlp_down",
            module=Module.MLP,
            rows=cut.local_tokens,
            columns=self.hidden,
            inner=inner,
            saved=(activated,),
        )

    def _normed(self, name: str, cut: Cut) -> SavedTensor:
        """Return the norm's output as a product saves it: the shard with sequence parallel."""
        size_bytes = cut.element_bytes * cut.sharded_tokens * self.hidden
        return SavedTensor(name=name, size_bytes=size_bytes, made_by=Module.NORM)

    def _residual(self, name: str, cut: Cut, *, has_bias: bool) -> MemoryPass:
        return residual_pass(
            name, hidden=self.hidden, cut=cut, dropout=self.hidden_dropout, has_bias=has_bias
        )

    def _local_attention(self, cut: Cut) -> LocalAttention:
        return LocalAttention(
            heads=self.heads // cut.tensor_parallel,
            kv_heads=self._local_kv_heads(cut.tensor_parallel),
            head_dim=self.head_dim,
            dropout=self.attention_dropout,
            cut=cut,
        )

    def _local_kv_heads(self, tensor_parallel: int) -> int:
        """Key heads of one device; with more devices than key heads each is replicated."""
        return max(1, self.kv_heads // tensor_parallel)

    def _qkv_columns(self, tensor_parallel: int) -> int:
        heads = self.heads // tensor_parallel + 2 * self._local_kv_heads(tensor_parallel)
        return heads * self.head_dim

    def _up_columns(self, tensor_parallel: int) -> int:
        return (2 if self.gated else 1) * self.ffn // tensor_parallel

    def _parameters(self, *, tensor_parallel: int) -> int:
        qkv_columns, up_columns = self._qkv_columns(tensor_parallel), self._up_columns(tensor_parallel)
        rows = (self.heads * self.head_dim + self.ffn) // tensor_parallel
        weights = self.hidden * (qkv_columns + up_columns + rows)
        sharded_biases = self.qkv_bias * qkv_columns + self.mlp_bias * up_columns
        replicated = self.output_bias + self.mlp_bias + 2 * self.norm.parameters_per_channel
        return weights + sharded_biases + replicated * self.hidden
