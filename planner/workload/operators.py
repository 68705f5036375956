"""The operators that a layer is made of, with local shapes, and what each saves for backward.

One list of operators is the source of every figure: time, memory, FLOP, what recomputation frees
and costs, what tensor parallelism moves.
"""

from dataclasses import dataclass
from enum import StrEnum

from planner.units import Bytes, Flops


class Phase(StrEnum):
    """The part of a training step in which a kernel runs."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input_gradient"
    WEIGHT_GRADIENT = "weight_gradient"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class Module(StrEnum):
    """The part of a layer that an operator belongs to: the grain of selective recomputation."""

    CORE_ATTENTION = "core_attention"
    ATTENTION = "attention"
    LATENT_PROJECTION = "latent_projection"
    MIXER = "mixer"
    CONVOLUTION = "convolution"
    RECURRENCE = "recurrence"
    TABLES = "tables"
    INTERACTION = "interaction"
    MLP = "mlp"
    MOE = "moe"
    MOE_ACTIVATION = "moe_activation"
    SHARED_EXPERTS = "shared_experts"
    NORM = "norm"
    MLP_NORM = "mlp_norm"
    """A norm inside the kernel of an MLP's first product."""
    INNER_NORM = "inner_norm"
    """A norm inside the kernel of another branch's first product."""
    RESIDUAL = "residual"
    EMBEDDING = "embedding"
    HEAD = "head"
    TRACED = "traced"


class Collective(StrEnum):
    """A collective operation between the ranks of one group."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND_RECEIVE = "send_receive"
    BROADCAST = "broadcast"


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedTensor:
    """A tensor that an operator saves for its backward pass.

    ``made_by`` is the module whose recomputation makes the tensor again; None is the layer's input. One
    that is kept ``only_to_rerun`` its user is not there where that does not run again.
    """

    name: str
    size_bytes: Bytes
    made_by: Module | None
    only_to_rerun: bool = False


Saved = tuple[SavedTensor, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixProduct:
    """C[rows, columns] = A[rows, inner] B[inner, columns], ``count`` times.

    With ``has_weights`` B is a parameter: backward is an input gradient [rows, columns] x
    [columns, inner] and a weight gradient [columns, rows] x [rows, inner]. Without, both operands
    are activations and both gradients are products of the same size (the unfused attention core).
    With weights and a ``count`` above one it is a grouped product: one matrix per expert, or per group
    of a convolution's channels. ``repeats`` products with the same weights follow one another, each
    waiting for the one before (the steps of a recurrence); their weight gradient is one product.
    ``input_elements`` are those of A where its rows overlap, as the windows of a convolution do. Without
    ``has_input_gradient`` nothing before A is trained: backward is the gradient of B alone.
    """

    name: str
    module: Module
    rows: int
    columns: int
    inner: int
    count: int = 1
    repeats: int = 1
    has_weights: bool = True
    has_input_gradient: bool = True
    input_elements: int | None = None
    trains: bool = True
    dequantized: bool = False
    forward_only: bool = False
    saved: Saved = ()

    @property
    def saved_bytes(self) -> Bytes:
        """Bytes saved for backward when nothing is recomputed."""
        return sum(tensor.size_bytes for tensor in self.saved)

    @property
    def forward_flops(self) -> Flops:
        """Two FLOP per multiply-add."""
        return 2.0 * self.count * self.repeats * self.rows * self.columns * self.inner

    @property
    def gradient_elements(self) -> int:
        """Elements of the gradients of its output and of its input."""
        rows = self.count * self.repeats * self.rows
        inputs = rows * self.inner if self.input_elements is None else self.input_elements
        return rows * self.columns + inputs


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionCore:
    """softmax(Q K^T) V in one fused kernel: ``batch`` sequences, local ``heads``.

    It saves Q, K, V and the output's log-sum-exp; the output is saved by the product that uses it.
    A query sees the ``window`` keys before it (as many on either side without a causal mask), or the
    keys of its own ``chunk`` alone; None for all. With ``sinks`` every head has one more score, learnt, in
    its softmax. ``working_bytes`` live only while it runs in either direction, beside what is saved.
    """

    name: str
    module: Module
    batch: int
    query_length: int
    key_length: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    causal: bool
    window: int | None = None
    chunk: int | None = None
    forward_only: bool = False
    sinks: bool = False
    working_bytes: Bytes = 0.0
    saved: Saved = ()

    @property
    def saved_bytes(self) -> Bytes:
        """Bytes saved for backward when nothing is recomputed."""
        return sum(tensor.size_bytes for tensor in self.saved)

    @property
    def mask_share(self) -> float:
        """Share of all query-key pairs that the mask leaves."""
        return mask_share(self.key_length, causal=self.causal, window=self.window, chunk=self.chunk)

    @property
    def forward_flops(self) -> Flops:
        """Both products over the pairs that the mask leaves: half of all where it is causal."""
        pairs = self.query_length * self.key_length * self.mask_share
        return 2.0 * self.batch * self.heads * pairs * (self.head_dim + self.value_dim)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPass:
    """A pass bound by memory bandwidth: norm, activation, dropout, softmax, loss.

    ``kind`` names the measured kernel that it resembles; bytes are read plus written. A depth-wise
    convolution also has ``forward_flops`` that count as useful. ``repeats`` passes of so many bytes
    follow one another, each waiting for the one before. ``working_bytes`` live only while it runs in
    either direction, beside what is saved.
    """

    name: str
    module: Module
    kind: str
    forward_bytes: Bytes
    backward_bytes: Bytes
    forward_flops: Flops = 0.0
    repeats: int = 1
    forward_only: bool = False
    working_bytes: Bytes = 0.0
    saved: Saved = ()

    @property
    def saved_bytes(self) -> Bytes:
        """Bytes saved for backward when nothing is recomputed."""
        return sum(tensor.size_bytes for tensor in self.saved)


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectivePass:
    """A collective over the ranks of one mesh axis, inside a layer.

    ``payload_bytes`` is counted as nccl-tests do (all-gather: the gathered total; reduce-scatter:
    the input of one rank) and moved ``count`` times, between ``ranks`` of the axis (None: all) that are
    ``step`` of its ranks apart. ``hidden_behind`` names the phase of the
    operator ``partner`` that may run at the same time, where the framework overlaps them.
    """

    name: str
    module: Module
    operation: Collective
    payload_bytes: Bytes
    axis: str
    phase: Phase
    partner: str | None = None
    hidden_behind: Phase | None = None
    count: int = 1
    ranks: int | None = None
    step: int = 1
    forward_only: bool = False


def mask_share(length: int, *, causal: bool, window: int | None = None, chunk: int | None = None) -> float:
    """Return the share of the pairs of ``length`` queries and keys that a mask leaves, as areas.

    A triangle of s^2/2 where it is causal; a band of w s - w^2/2 of that, or a band on either side of
    the diagonal; triangles or squares along the diagonal for chunks, the last one cut short.
    """
    half = 0.5 if causal else 1.0
    if chunk is not None and chunk < length:
        whole, rest = divmod(length, chunk)
        return half * (whole * chunk**2 + rest**2) / length**2
    if window is not None and window < length:
        share = window / length
        return half * (2 * share - share**2)
    return half


Operator = MatrixProduct | AttentionCore | MemoryPass | CollectivePass
