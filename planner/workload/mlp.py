"""The MLP of a transformer block, as a branch and as a shared expert.

Letters: T tokens of one device, h hidden, f width, t tensor parallel. Source of the saved tensors:
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4.
"""

from dataclasses import dataclass
from typing import ClassVar

from planner.units import Flops
from planner.workload.branches import BranchInput, SplitBranch
from planner.workload.layers import Cut, Split
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator, SavedTensor
from planner.workload.passes import dropout_mask, gate_tensors
from planner.workload.sizes import require_flag, require_probability, require_size
from planner.workload.tensor_parallel import AXIS, entering_collectives, leaving_collectives


@dataclass(frozen=True, kw_only=True, slots=True)
class Mlp(SplitBranch):
    """Up, activation, down; ``gated`` ones have three matrices (gate, up, down), others two.

    ``dropout`` is that of the activation, inside the MLP.
    """

    label: ClassVar[str] = "mlp"
    module: ClassVar[Module] = Module.MLP

    hidden: int
    ffn: int
    gated: bool = True
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        require_size("hidden", self.hidden)
        require_size("ffn", self.ffn)
        require_flag("gated", self.gated)
        require_flag("bias", self.bias)
        require_probability("dropout", self.dropout)

    @property
    def has_output_bias(self) -> bool:
        """Whether the down product has a bias."""
        return self.bias

    @property
    def splits(self) -> tuple[Split, ...]:
        """The width."""
        return (Split(name="MLP width", pieces=self.ffn, axis=AXIS),)

    def forward_flops(self, sequence_length: int, *, memory_length: int) -> Flops:  # noqa: ARG002 - a Branch
        """Return 2 s per weight."""
        return 2.0 * sequence_length * self.hidden * (self.up_columns(1) + self.ffn)

    def operators(self, cut: Cut, source: BranchInput) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        return self.named_operators(cut, source, label=self.label, module=self.module)

    def named_operators(
        self, cut: Cut, source: BranchInput, *, label: str, module: Module
    ) -> tuple[Operator, ...]:
        """Return the operators under the names and the module of the MLP's place in a block."""
        hidden, columns, width = self.hidden, self.up_columns(cut.tensor_parallel), self._width(cut)
        up, down = f"{label}_up", f"{label}_down"
        kept_bytes = cut.keeping.input_bytes(cut.element_bytes) * cut.local_tokens * width
        return (
            *entering_collectives(product=up, module=module, hidden=hidden, cut=cut),
            MatrixProduct(
                name=up,
                module=module,
                rows=cut.local_tokens,
                columns=columns,
                inner=hidden,
                saved=source.saved(f"{up}_input", hidden=hidden, cut=cut),
            ),
            self._activation_pass(cut, label=label, module=module),
            MatrixProduct(
                name=down,
                module=module,
                rows=cut.local_tokens,
                columns=hidden,
                inner=width,
                saved=(SavedTensor(name=f"{down}_input", size_bytes=kept_bytes, made_by=module),),
            ),
            *leaving_collectives(product=down, module=module, hidden=hidden, cut=cut),
        )

    def up_columns(self, tensor_parallel: int) -> int:
        """Return the columns of the up product on one device: gate and up, or up alone."""
        return (2 if self.gated else 1) * self.ffn // tensor_parallel

    def _width(self, cut: Cut) -> int:
        return self.ffn // cut.tensor_parallel

    def _activation_pass(self, cut: Cut, *, label: str, module: Module) -> MemoryPass:
        """Forward reads its input and writes f values; backward reads dy and the input and writes dx.

        A bias gradient sums dx once more. A dropout keeps its mask beside them.
        """
        name, values = f"{label}_activation", cut.element_bytes * cut.local_tokens
        input_bytes = values * self.up_columns(cut.tensor_parallel)
        output_bytes = values * self._width(cut)
        elements = cut.local_tokens * self._width(cut)
        mask = dropout_mask(name, elements=elements, dropout=self.dropout, module=module)
        mask_bytes = sum(tensor.size_bytes for tensor in mask)
        bias_bytes = input_bytes if self.bias else 0
        return MemoryPass(
            name=name,
            module=module,
            kind="gated_activation" if self.gated else "gelu",
            forward_bytes=input_bytes + output_bytes + mask_bytes,
            backward_bytes=2 * input_bytes + output_bytes + bias_bytes + mask_bytes,
            saved=(
                SavedTensor(name=f"{name}_input", size_bytes=input_bytes, made_by=module),
                *gate_tensors(name, size_bytes=output_bytes, gated=self.gated, cut=cut, made_by=module),
                *mask,
            ),
        )

    def _parameters(self, *, tensor_parallel: int) -> int:
        """Return one device's share; the bias after the sum is replicated."""
        columns = self.up_columns(tensor_parallel)
        weights = self.hidden * (columns + self.ffn // tensor_parallel)
        return weights + self.bias * (columns + self.hidden)
