import pytest
import torch

from planner.workload.operators import Phase
from profiler.backend import CpuBackend
from profiler.kernels import OPERATORS, kernel_call, kernel_flops
from profiler.operands import InvalidShape, Tensors, Unsupported
from profiler.passes import PASSES
from profiler.shapes import KernelShape

CPU = CpuBackend(processes_per_node=1)

SHAPES = {
    "matrix_product": {"m": 6, "n": 5, "k": 4},
    "attention": {
        "batch": 2,
        "sequence": 8,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "value_dim": 4,
        "causal": 1,
    },
    "layer_norm": {"rows": 4, "cols": 8},
    "rms_norm": {"rows": 4, "cols": 8},
    "softmax": {"rows": 4, "cols": 8},
    "cross_entropy": {"rows": 4, "cols": 8},
    "rotary": {"rows": 4, "cols": 8},
    "permute": {"rows": 4, "cols": 8},
    "embedding": {"rows": 4, "cols": 8, "vocabulary": 6},
    "grouped_matrix_product": {"groups": 3, "m": 6, "n": 5, "k": 4},
    "batched_matrix_product": {"batch": 3, "m": 6, "n": 5, "k": 4},
    "launch": {},
    "adam": {"params": 16},
    "sgd": {"params": 16},
}
LINE = {"elems": 16}


UNEVEN_HEADS = KernelShape(
    operator="attention",
    dtype="fp32",
    phase=Phase.FORWARD,
    shape={**SHAPES["attention"], "kv_heads": 3},
)


def kernel(operator: str, phase: Phase, *, dtype: str = "fp32", **sizes: int) -> KernelShape:
    return KernelShape(operator=operator, dtype=dtype, phase=phase, shape=sizes or SHAPES.get(operator, LINE))


@pytest.mark.parametrize(
    ("operator", "phase"),
    [(name, phase) for name, operator in OPERATORS.items() for phase in operator.makers],
)
def test_every_kernel_runs_again_and_again(operator: str, phase: Phase) -> None:
    call = kernel_call(kernel(operator, phase), CPU)

    for _ in range(3):
        call()


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.INPUT_GRADIENT, Phase.WEIGHT_GRADIENT])
def test_products_have_the_sizes_asked_for(phase: Phase) -> None:
    made = kernel_call(kernel("matrix_product", phase), CPU)()

    assert isinstance(made, torch.Tensor)
    assert made.shape == (6, 5)


@pytest.mark.parametrize(
    ("phase", "sizes"),
    [
        (Phase.FORWARD, (3, 6, 5)),
        (Phase.INPUT_GRADIENT, (3, 6, 4)),
        (Phase.WEIGHT_GRADIENT, (3, 5, 4)),
    ],
)
def test_gradients_of_grouped_products_follow_from_the_sizes_of_the_forward_product(
    phase: Phase, sizes: tuple[int, ...]
) -> None:
    made = kernel_call(kernel("grouped_matrix_product", phase), CPU)()

    assert isinstance(made, torch.Tensor)
    assert made.shape == sizes


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.INPUT_GRADIENT, Phase.WEIGHT_GRADIENT])
def test_products_of_eight_bits_give_sixteen(phase: Phase) -> None:
    class EightBits(CpuBackend):
        def use_precision(self, name: str) -> torch.dtype | None:
            return torch.float8_e4m3fn if name == "fp8" else super().use_precision(name)

    wanted = kernel("matrix_product", phase, dtype="fp8", m=16, n=32, k=16)
    made = kernel_call(wanted, EightBits(processes_per_node=1))()

    assert isinstance(made, torch.Tensor)
    assert (made.shape, made.dtype) == ((16, 32), torch.bfloat16)


def test_rotary_turns_pairs_of_channels() -> None:
    shape = {"rows": 3, "cols": 8}
    tensors = Tensors(dtype=torch.float32, device=torch.device("cpu"))
    gradients = PASSES["rotary"].makers[Phase.BACKWARD](shape, tensors)()

    assert isinstance(gradients, tuple)
    assert [tuple(gradient.shape) for gradient in gradients] == [(3, 8)]


def test_backward_gives_a_gradient_to_every_input() -> None:
    gradients = kernel_call(kernel("attention", Phase.BACKWARD), CPU)()

    assert isinstance(gradients, tuple)
    assert [tuple(gradient.shape) for gradient in gradients] == [(2, 4, 8, 8), (2, 2, 8, 8), (2, 2, 8, 4)]


def test_operands_change_from_call_to_call() -> None:
    call = kernel_call(kernel("add", Phase.FORWARD), CPU)

    first, second = call(), call()

    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    assert not torch.equal(first, second)


def test_precision_is_the_one_asked_for() -> None:
    made = kernel_call(kernel("matrix_product", Phase.FORWARD, dtype="bf16"), CPU)()

    assert isinstance(made, torch.Tensor)
    assert made.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "wanted",
    [
        kernel("matrix_product", Phase.OPTIMIZER),
        kernel("matrix_product", Phase.FORWARD, dtype="fp8"),
        kernel("telepathy", Phase.FORWARD),
    ],
)
def test_unknown_kernels_are_unsupported(wanted: KernelShape) -> None:
    with pytest.raises(Unsupported, match="is not measured on cpu"):
        kernel_call(wanted, CPU)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (kernel("matrix_product", Phase.FORWARD, m=2, n=2), "lacks k"),
        (kernel("matrix_product", Phase.FORWARD, m=2, n=2, k=0), "k must be 1 or more"),
        (
            UNEVEN_HEADS,
            r"heads \(4\) must be a multiple of kv_heads \(3\)",
        ),
    ],
)
def test_shapes_that_make_no_sense_are_refused(wanted: KernelShape, message: str) -> None:
    with pytest.raises(InvalidShape, match=message):
        kernel_call(wanted, CPU)


def test_operands_that_cannot_fit_are_refused_before_they_are_made() -> None:
    with pytest.raises(MemoryError, match="needs 12000000000000000000 B"):
        kernel_call(kernel("matrix_product", Phase.FORWARD, m=10**9, n=10**9, k=10**9), CPU)


@pytest.mark.parametrize(
    ("wanted", "flops"),
    [
        (kernel("matrix_product", Phase.FORWARD), 2 * 6 * 5 * 4),
        (kernel("attention", Phase.FORWARD), 2 * 2 * 4 * 8 * 8 * (8 + 4) / 2),
        (kernel("attention", Phase.BACKWARD), 2.5 * 2 * 2 * 4 * 8 * 8 * (8 + 4) / 2),
        (kernel("grouped_matrix_product", Phase.WEIGHT_GRADIENT), 3 * 2 * 6 * 5 * 4),
        (kernel("batched_matrix_product", Phase.BACKWARD), 2 * 3 * 2 * 6 * 5 * 4),
        (kernel("gelu", Phase.FORWARD), None),
    ],
)
def test_flops_of_kernels(wanted: KernelShape, flops: float | None) -> None:
    assert kernel_flops(wanted) == flops
