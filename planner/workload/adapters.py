"""Low-rank adapters beside frozen products (Hu et al., "LoRA", 2021): y = W x + B (A x).

A is rank x inputs, B outputs x rank; both are trained, W is not. Where a product of this planner joins
several maps of a model (Q, K and V; gate and up), each has an adapter of its own, as in PEFT, or one for
all of them where the target names the joint map, as in Megatron.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.job import BaseFormat
from planner.optimizers import Matrix, WeightShapes
from planner.units import Flops
from planner.workload.frozen import LayerAround, at_rest, frozen_cut, frozen_holdings, frozen_operators
from planner.workload.layers import Cut
from planner.workload.operators import (
    Collective,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Phase,
    Saved,
    SavedTensor,
)
from planner.workload.tensor_parallel import AXIS, gathers_a_saved_input, tensor_collective
from planner.workload.weights import (
    EXPERT_PRODUCTS,
    Holding,
    Holdings,
    weight_flops_per_sample,
    weight_products,
)

GATE_UP: Final = ("gate_proj", "up_proj")
MAPS: Final[Mapping[str, tuple[str, ...]]] = {
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "query": ("q_proj",),
    "query_down": ("q_a_proj",),
    "query_up": ("q_b_proj",),
    "key_value_down": ("kv_a_proj_with_mqa",),
    "key_value_up": ("kv_b_proj",),
    "cross_query": ("q_proj",),
    "cross_key_value": ("k_proj", "v_proj"),
    "attention_output": ("o_proj",),
    "cross_attention_output": ("o_proj",),
    "mlp_up": GATE_UP,
    "mlp_down": ("down_proj",),
    "shared_up": GATE_UP,
    "shared_down": ("down_proj",),
    "experts_up": GATE_UP,
    "experts_down": ("down_proj",),
    "mixer_in": ("in_proj",),
    "mixer_out": ("out_proj",),
    "select": ("x_proj",),
    "steps": ("dt_proj",),
}
"""The maps that a product joins, in the words of Hugging Face's Llama, DeepSeek and Mamba."""

UP: Final = ("mlp_up", "shared_up", "experts_up")
DOWN: Final = ("mlp_down", "shared_down", "experts_down")
OUT: Final = ("attention_output", "cross_attention_output")
JOINT: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("linear_qkv", "qkv_proj", "query_key_value", "c_attn", "Wqkv", "qkv"), ("qkv",)),
    **dict.fromkeys(("linear_proj", "dense", "out_proj", "attention_output"), (*OUT, "mixer_out")),
    **dict.fromkeys(("linear_fc1", "gate_up_proj", "fc1", "c_fc", "dense_h_to_4h", "mlp_up"), UP),
    **dict.fromkeys(("linear_fc2", "fc2", "dense_4h_to_h", "mlp_down"), DOWN),
    "c_proj": (*OUT, *DOWN),
}
"""Names of whole products in Megatron and in models that join the maps themselves."""
BRANCH_INPUTS: Final = (Module.NORM, Module.MLP_NORM, Module.INNER_NORM, None)
"""What makes the input of a branch: a norm, or in a post-norm block the layer before."""
ALL_LINEAR: Final = "all-linear"
TARGETS: Final = tuple(
    dict.fromkeys((*(part for parts in MAPS.values() for part in parts), *JOINT, ALL_LINEAR))
)
"""Every name that a target may have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapters:
    """Which products get adapters, and how large; None for every product that has a name above."""

    rank: int
    targets: tuple[str, ...] | None = None

    def columns(self, op: MatrixProduct, operators: Sequence[Operator], cut: Cut) -> tuple[int, ...]:
        """Return the output columns of every adapter beside a product; none where it is no target."""
        if op.name not in MAPS:
            return ()
        targets = (ALL_LINEAR,) if self.targets is None else self.targets
        if any(op.name in JOINT.get(target, ()) for target in targets):
            return (op.columns,)
        widths = _split(op, operators, cut)
        parts = zip(MAPS[op.name][-len(widths) :], widths, strict=True)
        return tuple(width for part, width in parts if ALL_LINEAR in targets or part in targets)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptedLayer(LayerAround):
    """A frozen layer with adapters beside some of its products.

    Every layer is taken to pass a gradient on, the first one too: one layer's difference, and equal layers
    stay equal.
    """

    adapters: Adapters
    base_format: BaseFormat | None = None

    @property
    def parameters(self) -> int:
        """Those of the layer, and of its adapters."""
        return self.layer.parameters + self._whole.parameters

    def local_parameters(self, cut: Cut) -> int:
        """Return those of the layer, and of its adapters."""
        return self.layer.local_parameters(cut) + self.adapter_holdings(cut).parameters

    def local_expert_parameters(self, cut: Cut) -> int:
        """Return those of experts, and of the adapters beside them."""
        return self.layer.local_expert_parameters(cut) + self.adapter_holdings(cut).experts.parameters

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return those of the layer, and of its adapters."""
        return self.layer.forward_flops_per_sample(sequence_length) + self._adapter_flops(sequence_length)

    def step_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return all but the weight gradients of the layer's own products."""
        own = 3.0 * self.layer.forward_flops_per_sample(sequence_length)
        frozen = weight_flops_per_sample(self.layer, sequence_length)
        return own - frozen + 3.0 * self._adapter_flops(sequence_length)

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        return tuple(at_rest(tuple(self._adapted_operators(cut)), self.base_format, cut))

    def holdings(self, cut: Cut) -> Holdings:
        """Return what one device holds: the layer, frozen, and its adapters."""
        return frozen_holdings(self.layer, self.base_format, cut) + self.adapter_holdings(cut)

    def adapter_holdings(self, cut: Cut) -> Holdings:
        """Return the adapters that one device holds."""
        whole = self.layer.operators(cut)
        products = [(op, self.adapters.columns(op, whole, cut)) for op in weight_products(whole)]
        return Holdings(
            dense=self._holding([entry for entry in products if entry[0].name not in EXPERT_PRODUCTS]),
            experts=self._holding([entry for entry in products if entry[0].name in EXPERT_PRODUCTS]),
        )

    def _holding(self, products: Sequence[tuple[MatrixProduct, tuple[int, ...]]]) -> Holding:
        rank = self.adapters.rank
        matrices = tuple(
            matrix
            for op, parts in products
            for columns in parts
            for matrix in (
                Matrix(rows=rank, columns=op.inner, count=op.count),
                Matrix(rows=columns, columns=rank, count=op.count),
            )
        )
        return Holding(trained=WeightShapes(matrices=matrices))

    @property
    def _whole(self) -> Holdings:
        """The adapters of the whole layer."""
        return self.adapter_holdings(Cut(micro_batch_size=1, sequence_length=1))

    def _adapter_flops(self, sequence_length: int) -> Flops:
        cut = Cut(micro_batch_size=1, sequence_length=sequence_length)
        whole = self.layer.operators(cut)
        return sum(
            2.0 * op.count * op.repeats * op.rows * self.adapters.rank * (op.inner + columns)
            for op in weight_products(whole)
            for columns in self.adapters.columns(op, whole, cut)
        )

    def _adapted_operators(self, cut: Cut) -> Iterator[Operator]:
        whole = self.layer.operators(frozen_cut(cut))
        targets = {
            op.name: parts
            for op in weight_products(whole)
            if (parts := self.adapters.columns(op, whole, cut))
        }
        savers = _savers(whole, targets)
        inputs: Mapping[str, Saved] = {
            op.name: op.saved for op in weight_products(whole) if op.name in savers
        }
        for op in frozen_operators(whole):
            if isinstance(op, MatrixProduct):
                yield replace(op, saved=inputs.get(op.name, op.saved))
                yield from self._beside(op, targets.get(op.name, ()), whole, cut)
            else:
                yield op
        yield from (op for op in whole if gathers_a_saved_input(op) and op.partner in targets)

    def _beside(
        self, op: MatrixProduct, parts: Sequence[int], whole: Sequence[Operator], cut: Cut
    ) -> Iterator[Operator]:
        """Yield the adapters beside a product: down to the rank, up to the columns, and the sum."""
        for number, columns in enumerate(parts):
            yield from self._adapter(op, f"{op.name}_adapter_{number}", columns, cut)
        if parts:
            yield _sum_pass(op, parts, cut)
            yield from _low_rank_reduction(op, len(parts) * self.adapters.rank, whole, cut)

    def _adapter(self, op: MatrixProduct, name: str, columns: int, cut: Cut) -> Iterator[Operator]:
        rank = self.adapters.rank
        low_rank = cut.element_bytes * op.count * op.rows * rank
        yield MatrixProduct(
            name=f"{name}_down",
            module=op.module,
            rows=op.rows,
            columns=rank,
            inner=op.inner,
            count=op.count,
            repeats=op.repeats,
        )
        yield MatrixProduct(
            name=f"{name}_up",
            module=op.module,
            rows=op.rows,
            columns=columns,
            inner=rank,
            count=op.count,
            repeats=op.repeats,
            saved=(SavedTensor(name=f"{name}_low_rank", size_bytes=low_rank, made_by=op.module),),
        )


def _split(op: MatrixProduct, operators: Sequence[Operator], cut: Cut) -> tuple[int, ...]:
    """Return the columns of each map that a product joins; without a gate an MLP has the last of two."""
    match op.name:
        case "qkv":
            key, value = _projected_columns(op, operators, cut)
            return (op.columns - key - value, key, value)
        case "cross_key_value":
            return (op.columns // 2, op.columns - op.columns // 2)
        case "mlp_up" | "shared_up" | "experts_up":
            down = op.name.replace("_up", "_down")
            inner = next(other.inner for other in weight_products(operators) if other.name == down)
            return (op.columns,) if inner == op.columns else (op.columns - inner, inner)
        case _:
            return (op.columns,)


def _projected_columns(op: MatrixProduct, operators: Sequence[Operator], cut: Cut) -> tuple[int, int]:
    """Return the columns of keys and values: the width of what the attention core after a product saves."""
    after = operators[operators.index(op) :]
    sizes = {
        tensor.name: tensor.size_bytes
        for other in reversed(after)
        if not isinstance(other, CollectivePass)
        for tensor in other.saved
        if tensor.name in {"key", "value"}
    }
    row_bytes = cut.element_bytes * op.rows
    return round(sizes["key"] / row_bytes), round(sizes["value"] / row_bytes)


def _savers(operators: Sequence[Operator], targets: Mapping[str, tuple[int, ...]]) -> frozenset[str]:
    """Return the products that have to save their input for the adapters beside some of them.

    A product that saves none reads the branch's input, which the nearest one before it saved that reads it.
    """
    found: set[str] = set()
    reader: str | None = None
    for op in weight_products(operators):
        if any(tensor.made_by in BRANCH_INPUTS for tensor in op.saved):
            reader = op.name
        if op.name in targets and op.saved:
            found.add(op.name)
        elif op.name in targets and reader is not None:
            found.add(reader)
    return frozenset(found)


def _sum_pass(op: MatrixProduct, parts: Sequence[int], cut: Cut) -> MemoryPass:
    """Add what adapters made to what the product made; backward adds every adapter's input gradient."""
    rows = cut.element_bytes * op.count * op.rows
    return MemoryPass(
        name=f"{op.name}_adapter_sum",
        module=op.module,
        kind="add",
        forward_bytes=3 * rows * sum(parts),
        backward_bytes=3 * rows * op.inner * len(parts),
    )


def _low_rank_reduction(
    op: MatrixProduct, rank: int, operators: Sequence[Operator], cut: Cut
) -> tuple[CollectivePass, ...]:
    """Return what sums the gradient of A's output where B is split by columns over tensor parallel.

    A is whole on every rank there. Beside a product that is split by inputs A is split and B whole, and
    the product's own sum takes both.
    """
    splits_columns = any(
        isinstance(other, CollectivePass) and other.partner == op.name and other.axis == AXIS
        for other in operators
    )
    if not splits_columns:
        return ()
    payload = float(cut.element_bytes * op.count * op.rows * rank)
    return (
        tensor_collective(
            f"{op.name}_adapter_gradient_reduce",
            op.module,
            Collective.ALL_REDUCE,
            phase=Phase.BACKWARD,
            payload_bytes=payload,
        ),
    )
