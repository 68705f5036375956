import pytest

from planner.workload.operators import Phase
from profiler.kernels import OPERATORS
from profiler.ladder import default_shapes


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_rung_is_a_kernel_that_can_be_measured(kind: str) -> None:
    for kernel in default_shapes(kind, dtype="bf16", world_size=1).kernels:
        operator = OPERATORS[kernel.operator]
        assert kernel.phase in operator.makers
        assert set(operator.sizes) == set(kernel.shape)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_operator_is_on_the_ladder_in_all_its_phases(kind: str) -> None:
    rungs = {
        (kernel.operator, kernel.phase) for kernel in default_shapes(kind, dtype="fp32", world_size=1).kernels
    }

    assert rungs == {(name, phase) for name, operator in OPERATORS.items() for phase in operator.makers}


def test_gradients_of_a_product_have_its_sizes_in_their_own_places() -> None:
    products = [
        kernel
        for kernel in default_shapes("cpu", dtype="fp32", world_size=1).kernels
        if kernel.operator == "matrix_product"
    ]
    forward, input_gradient, weight_gradient = products[3:6]

    assert [kernel.phase for kernel in products[3:6]] == [
        Phase.FORWARD,
        Phase.INPUT_GRADIENT,
        Phase.WEIGHT_GRADIENT,
    ]
    m, n, k = (forward.shape[name] for name in "mnk")
    assert input_gradient.shape == {"m": m, "n": k, "k": n}
    assert weight_gradient.shape == {"m": n, "n": k, "k": m}


@pytest.mark.parametrize(
    ("world_size", "groups"), [(1, set()), (2, {2}), (3, {2, 3}), (4, {2, 4}), (6, {2, 4, 6}), (8, {2, 4, 8})]
)
def test_groups_double_up_to_all_processes(world_size: int, groups: set[int]) -> None:
    collectives = default_shapes("cpu", dtype="fp32", world_size=world_size).collectives

    assert {collective.world_size for collective in collectives} == groups


def test_ladder_of_a_processor_is_short() -> None:
    assert len(default_shapes("cpu", dtype="fp32", world_size=2).interleaved()) < 100
