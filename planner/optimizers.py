"""The optimizers by what each keeps, moves and computes for the parameters that it trains.

Some treat matrices, tables and vectors differently, hence the shapes: Muon orthogonalises the update of
hidden matrices and runs Adam on the rest, Adafactor keeps sums over rows and columns instead of a second
moment, row-wise AdaGrad one number per row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from planner.units import Bytes, Flops

FP32_BYTES: Final = 4
EIGHT_BIT_BLOCK: Final = 256
"""Values that share one FP32 scale in the 8-bit optimizers of bitsandbytes (Dettmers et al., 2022: 2048)."""
EIGHT_BIT_BYTES: Final = 1 + FP32_BYTES / EIGHT_BIT_BLOCK
NEWTON_SCHULZ_STEPS: Final = 5
"""Steps that Muon's reference implementation (Jordan et al., 2024) takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """``count`` equal weights of so many rows (outputs) and columns (inputs)."""

    rows: int
    columns: int
    count: int = 1

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.count * self.rows * self.columns


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightShapes:
    """Parameters by shape: hidden matrices, tables (embedding, head), and the rest (norms, biases)."""

    matrices: tuple[Matrix, ...] = ()
    tables: tuple[Matrix, ...] = ()
    vectors: int = 0

    @property
    def parameters(self) -> int:
        """All of them."""
        return sum(matrix.parameters for matrix in (*self.matrices, *self.tables)) + self.vectors

    def __add__(self, other: "WeightShapes") -> "WeightShapes":
        """Return both together."""
        return WeightShapes(
            matrices=self.matrices + other.matrices,
            tables=self.tables + other.tables,
            vectors=self.vectors + other.vectors,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """The values that a rule keeps: so many per parameter, and per row and column of a matrix.

    ``value_bytes`` is their width where the rule fixes it; None as the job says, FP32 by default.
    """

    values: int = 0
    row_values: int = 0
    column_values: int = 0
    value_bytes: float | None = None

    def bytes_of(self, matrices: Iterable[Matrix], *, value_bytes: float) -> Bytes:
        """Return the bytes kept for matrices, values as wide as the rule fixes or as given."""
        kept = sum(
            matrix.count
            * (
                self.values * matrix.rows * matrix.columns
                + self.row_values * matrix.rows
                + self.column_values * matrix.columns
            )
            for matrix in matrices
        )
        return kept * (value_bytes if self.value_bytes is None else self.value_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """An optimizer by what it keeps and computes for each trained parameter, besides a master weight.

    ``moments`` is what hidden matrices have, ``tables`` what embedding and head have where that differs,
    ``vectors`` the values per parameter of everything else. ``more_passes`` counts reads and writes of one
    value per parameter beyond a single fused pass, each as wide as the gradient. ``flops_per_parameter``
    leaves the ``newton_schulz_steps`` out.
    """

    name: str
    flops_per_parameter: Flops
    moments: Moments
    tables: Moments | None = None
    vectors: int = 0
    more_passes: int = 0
    newton_schulz_steps: int = 0

    @property
    def moment_values(self) -> int:
        """Values kept per parameter of a hidden matrix."""
        return self.moments.values

    def moment_bytes(self, shapes: WeightShapes, *, value_bytes: float) -> Bytes:
        """Return the bytes of everything kept for some parameters, values ``value_bytes`` wide."""
        tables = self.moments if self.tables is None else self.tables
        return (
            self.moments.bytes_of(shapes.matrices, value_bytes=value_bytes)
            + tables.bytes_of(shapes.tables, value_bytes=value_bytes)
            + self.vectors * shapes.vectors * value_bytes
        )


def newton_schulz_products(rows: int, columns: int) -> tuple[tuple[int, int, int], ...]:
    """Return m, n, k of the products of one step that makes a matrix X of so many rows orthogonal.

    With m the smaller side and n the larger: A = X X^T (2 m^2 n FLOP), B = b A + c A A (2 m^3) and
    X = a X + B X (2 m^2 n), together 2 m^2 (2 n + m), or 6 m^3 for a square.
    """
    small, large = sorted((rows, columns))
    return (small, small, large), (small, small, small), (small, large, small)


ADAM: Final = Moments(values=2)
EIGHT_BIT_ADAM: Final = Moments(values=2, value_bytes=EIGHT_BIT_BYTES)
FACTORED: Final = Moments(row_values=1, column_values=1)

OPTIMIZERS: Final[Mapping[str, Optimizer]] = {
    optimizer.name: optimizer
    for optimizer in (
        # With momentum, as models are trained.
        Optimizer(name="sgd", flops_per_parameter=4.0, moments=Moments(values=1), vectors=1),
        Optimizer(name="sgd_plain", flops_per_parameter=2.0, moments=Moments()),
        Optimizer(name="adam", flops_per_parameter=12.0, moments=ADAM, vectors=2),
        Optimizer(name="adamw", flops_per_parameter=14.0, moments=ADAM, vectors=2),
        # Adam's, and per moment a look-up and a scale, and eight comparisons and a scale back. Tensors of
        # fewer than 4096 values, such as norms and biases, stay in 32 bits.
        Optimizer(name="adam_8bit", flops_per_parameter=12.0 + 2 * 11, moments=EIGHT_BIT_ADAM, vectors=2),
        Optimizer(name="adamw_8bit", flops_per_parameter=14.0 + 2 * 11, moments=EIGHT_BIT_ADAM, vectors=2),
        # Without a first moment (Shazeer and Stern, 2018, as in T5). Squares and their two sums 4, the
        # factored root and quotient 3, the norms of update and weight 4, clipping and update 3. The gradient
        # is read for the sums, for the norm of the update, and for the update.
        Optimizer(name="adafactor", flops_per_parameter=14.0, moments=FACTORED, vectors=1, more_passes=2),
        # Chen et al., 2023: two means of 3, a sign, and decay and update of 4.
        Optimizer(name="lion", flops_per_parameter=11.0, moments=Moments(values=1), vectors=1),
        Optimizer(
            name="lion_8bit",
            flops_per_parameter=11.0 + 11,
            moments=Moments(values=1, value_bytes=EIGHT_BIT_BYTES),
            vectors=1,
        ),
        # One moment and Newton-Schulz for hidden matrices, Adam for the rest (Jordan et al., 2024). The
        # averaged gradient is written for the products, their result read back.
        Optimizer(
            name="muon",
            flops_per_parameter=8.0,
            moments=Moments(values=1),
            tables=ADAM,
            vectors=2,
            more_passes=2,
            newton_schulz_steps=NEWTON_SCHULZ_STEPS,
        ),
        # You et al., 2020: Adam's, the norms of weight and update 4, the trust ratio 1. The update is
        # written, and read again once its norm is known.
        Optimizer(name="lamb", flops_per_parameter=19.0, moments=ADAM, vectors=2, more_passes=2),
        # You et al., 2017: SGD with momentum, its two norms over weight and gradient read once before.
        Optimizer(name="lars", flops_per_parameter=9.0, moments=Moments(values=1), vectors=1, more_passes=1),
        Optimizer(name="adagrad", flops_per_parameter=6.0, moments=Moments(values=1), vectors=1),
        # One mean of squares per row of a table (FBGEMM's exact row-wise AdaGrad): the gradient is read for
        # the mean, and for the update.
        Optimizer(
            name="rowwise_adagrad",
            flops_per_parameter=4.0,
            moments=Moments(row_values=1),
            vectors=1,
            more_passes=1,
        ),
    )
}
"""The optimizers by name."""

OPTIMIZER_ALIASES: Final[Mapping[str, str]] = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "fused_adam": "adam",
    "fusedadam": "adam",
    "adam8bit": "adam_8bit",
    "adamw8bit": "adamw_8bit",
    "adamw_bnb_8bit": "adamw_8bit",
    "lion_32bit": "lion",
    "momentum": "sgd",
    "exact_rowwise_adagrad": "rowwise_adagrad",
    "row_wise_adagrad": "rowwise_adagrad",
}
"""Names that frameworks and people use for the same."""
