"""The parameters that a device holds of a layer: by shape, by what is done with them, experts apart."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Protocol, runtime_checkable

from planner.optimizers import Matrix, WeightShapes
from planner.units import Flops
from planner.workload.layers import EMBEDDING, Cut, Layer
from planner.workload.operators import MatrixProduct, Module, Operator

TABLE_MODULES: Final = frozenset({Module.EMBEDDING, Module.HEAD})
"""Where products have a table of the vocabulary, or of classes, for a weight."""
EXPERT_PRODUCTS: Final = ("experts_up", "experts_down")
"""The products whose weights are split over expert parallel."""


NO_WEIGHTS: Final = WeightShapes()


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """Parameters of one device: trained ones by shape, frozen ones, and those that rest quantized.

    ``looked_up`` are tables so large that every backward pass updates the rows that it read, as fused
    embedding kernels do (FBGEMM): they have no gradients to keep, and ``touched`` is how many of their
    parameters one pass updates at most.
    """

    trained: WeightShapes = NO_WEIGHTS
    frozen: int = 0
    quantized: int = 0
    looked_up: WeightShapes = NO_WEIGHTS
    touched: int = 0

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.trained.parameters + self.frozen + self.quantized + self.looked_up.parameters

    @property
    def reduced(self) -> int:
        """Parameters whose gradients replicas average."""
        return self.trained.parameters + self.touched

    def __add__(self, other: "Holding") -> "Holding":
        """Return both together."""
        return Holding(
            trained=self.trained + other.trained,
            frozen=self.frozen + other.frozen,
            quantized=self.quantized + other.quantized,
            looked_up=self.looked_up + other.looked_up,
            touched=self.touched + other.touched,
        )


NO_HOLDING: Final = Holding()


@dataclass(frozen=True, kw_only=True, slots=True)
class Holdings:
    """The parameters of one device: experts, which fewer ranks share, and everything else."""

    dense: Holding = NO_HOLDING
    experts: Holding = NO_HOLDING

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.dense.parameters + self.experts.parameters

    def __add__(self, other: "Holdings") -> "Holdings":
        """Return both together."""
        return Holdings(dense=self.dense + other.dense, experts=self.experts + other.experts)


@runtime_checkable
class PartlyTrained(Protocol):
    """A layer that doesn't train all that it holds as others do, and says so."""

    def holdings(self, cut: Cut) -> Holdings:
        """Return what one device holds."""
        ...

    def step_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return the useful FLOP of one sample in forward and backward."""
        ...


def holdings(layer: Layer, cut: Cut) -> Holdings:
    """Return what one device holds of a layer."""
    if isinstance(layer, PartlyTrained):
        return layer.holdings(cut)
    # Whatever the size of its micro-batches, a layer that is trained as a whole holds the same.
    return trained_holdings(layer, cut if cut.micro_batch_size == 1 else replace(cut, micro_batch_size=1))


@lru_cache(maxsize=4096)
def step_flops_per_sample(layer: Layer, sequence_length: int) -> Flops:
    """Return the useful FLOP of one sample: forward once, backward twice, less what stays frozen."""
    if isinstance(layer, PartlyTrained):
        return layer.step_flops_per_sample(sequence_length)
    return 3.0 * layer.forward_flops_per_sample(sequence_length)


@lru_cache(maxsize=4096)
def trained_holdings(layer: Layer, cut: Cut) -> Holdings:
    """Return what one device holds of a layer that is trained as a whole."""
    experts = layer.local_expert_parameters(cut)
    common = layer.local_parameters(cut) - experts
    products = weight_products(layer.operators(cut))
    dense = [op for op in products if op.name not in EXPERT_PRODUCTS]
    return Holdings(
        dense=Holding(trained=_shapes(dense, common, layer)),
        experts=Holding(trained=_shapes([op for op in products if op not in dense], experts, layer)),
    )


def weight_products(operators: Iterable[Operator]) -> list[MatrixProduct]:
    """Return the products whose second operand is a parameter."""
    return [op for op in operators if isinstance(op, MatrixProduct) and op.has_weights]


def weights_of(op: MatrixProduct) -> int:
    """Return the parameters of a product."""
    return op.count * op.columns * op.inner


def weight_flops_per_sample(layer: Layer, sequence_length: int) -> Flops:
    """Return the forward FLOP of the products with weights: as many as their weight gradients take."""
    whole = Cut(micro_batch_size=1, sequence_length=sequence_length)
    return sum(op.forward_flops for op in weight_products(layer.operators(whole)))


def _shapes(products: Sequence[MatrixProduct], parameters: int, layer: Layer) -> WeightShapes:
    """Return so many parameters by shape: the weights of products, a table, and what is left.

    Products may share weights, or borrow them (a tied head); then shapes are left out.
    """
    is_whole = sum(map(weights_of, products)) <= parameters
    matrices = tuple(_matrix(op) for op in products if is_whole and op.module not in TABLE_MODULES)
    tables = tuple(_matrix(op) for op in products if is_whole and op.module in TABLE_MODULES)
    rest = parameters - sum(matrix.parameters for matrix in (*matrices, *tables))
    width = _table_width(layer)
    if width and rest >= width:
        tables += (Matrix(rows=rest // width, columns=width),)
        rest %= width
    return WeightShapes(matrices=matrices, tables=tables, vectors=rest)


def _matrix(op: MatrixProduct) -> Matrix:
    return Matrix(rows=op.columns, columns=op.inner, count=op.count)


def _table_width(layer: Layer) -> int:
    """Return the width of a table that is looked up, 0 for a layer without one."""
    if layer.kind != EMBEDDING:
        return 0
    width: int | None = getattr(layer, "width", None)
    hidden: int = getattr(layer, "hidden", 0)
    return width or hidden
