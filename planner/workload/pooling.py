"""The head of a SigLIP tower: one learned query attends to all tokens of an image, then an MLP."""

from dataclasses import dataclass, replace
from typing import ClassVar

from planner.units import Bytes, Flops
from planner.workload.branches import BranchInput
from planner.workload.layers import VISION, Cut, PlainLayer
from planner.workload.mlp import Mlp
from planner.workload.operators import AttentionCore, MatrixProduct, Module, Operator, SavedTensor
from planner.workload.passes import Norm, norm_pass
from planner.workload.sizes import require_divisible, require_size
from planner.workload.streams import ImageStream


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionPoolLayer(PlainLayer):
    """A query, attention with biases, a layer norm and an MLP of width ``ffn``; all of it is replicated."""

    kind: ClassVar[str] = VISION

    hidden: int
    ffn: int
    heads: int
    stream: ImageStream

    def __post_init__(self) -> None:
        for name in ("hidden", "ffn", "heads"):
            require_size(name, getattr(self, name))
        require_divisible("hidden", self.hidden, by_name="heads", by=self.heads)

    @property
    def parameters(self) -> int:
        """The query, four maps with biases, the norm, the MLP."""
        attention = 4 * self.hidden * (self.hidden + 1)
        norm = Norm.LAYER.parameters_per_channel * self.hidden
        return self.hidden + attention + norm + self._mlp.parameters

    def local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return all of them."""
        return self.parameters

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return 2 per token for the maps to keys and values, and what one token costs of all else."""
        tokens = self.stream.tokens(sequence_length)
        maps = 2.0 * self.hidden**2 * (2 * tokens + 2)
        pairs = 4.0 * tokens * self.hidden
        return self.stream.images * (maps + pairs + self._mlp.forward_flops(1, memory_length=1))

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of one vector per image."""
        return float(cut.element_bytes * cut.micro_batch_size * self.stream.images * self.hidden)

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order; none without images."""
        own = self.stream.cut(cut)
        images = own.micro_batch_size
        if not images:
            return ()
        one = replace(own, sequence_length=1, tensor_parallel=1)
        return (
            self._map(
                "pool_key_value", rows=own.local_tokens, columns=2 * self.hidden, cut=own, made_by=None
            ),
            self._core(own),
            self._map(
                "pool_output", rows=images, columns=self.hidden, cut=own, made_by=Module.CORE_ATTENTION
            ),
            norm_pass("pool_norm", Norm.LAYER, hidden=self.hidden, cut=one, made_by=Module.ATTENTION),
            *self._mlp.named_operators(one, BranchInput(), label="pool", module=Module.MLP),
        )

    def _map(self, name: str, *, rows: int, columns: int, cut: Cut, made_by: Module | None) -> MatrixProduct:
        size_bytes = cut.element_bytes * rows * self.hidden
        return MatrixProduct(
            name=name,
            module=Module.ATTENTION,
            rows=rows,
            columns=columns,
            inner=self.hidden,
            saved=(SavedTensor(name=f"{name}_input", size_bytes=size_bytes, made_by=made_by),),
        )

    def _core(self, cut: Cut) -> AttentionCore:
        size_bytes = 2 * cut.element_bytes * cut.local_tokens * self.hidden
        return AttentionCore(
            name="pool_core",
            module=Module.CORE_ATTENTION,
            batch=cut.micro_batch_size,
            query_length=1,
            key_length=cut.sequence_length,
            heads=self.heads,
            kv_heads=self.heads,
            head_dim=self.hidden // self.heads,
            value_dim=self.hidden // self.heads,
            causal=False,
            saved=(SavedTensor(name="pool_key_value", size_bytes=size_bytes, made_by=Module.ATTENTION),),
        )

    @property
    def _mlp(self) -> Mlp:
        return Mlp(hidden=self.hidden, ffn=self.ffn, gated=False, bias=True)
