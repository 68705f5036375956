import pytest

from planner.workload.operators import Collective, Phase
from profiler.kernels import OPERATORS
from profiler.ladder import default_shapes
from profiler.links import group_shape
from profiler.processes import GroupShape, Place
from profiler.shapes import Shapes


def ladder(kind: str, place: Place = Place()) -> Shapes:  # noqa: B008 - a place is never changed
    return default_shapes(kind, dtype="fp32", place=place)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_rung_is_a_kernel_that_can_be_measured(kind: str) -> None:
    for kernel in ladder(kind).kernels:
        operator = OPERATORS[kernel.operator]
        assert kernel.phase in operator.makers
        assert set(operator.sizes) == set(kernel.shape)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_operator_is_on_the_ladder_in_all_its_phases(kind: str) -> None:
    rungs = {(kernel.operator, kernel.phase) for kernel in ladder(kind).kernels}

    assert rungs == {(name, phase) for name, operator in OPERATORS.items() for phase in operator.makers}


def test_gradients_of_a_product_have_its_sizes_in_their_own_places() -> None:
    products = [kernel for kernel in ladder("cpu").kernels if kernel.operator == "matrix_product"]
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
    ("world_size", "per_node", "groups"),
    [
        (1, 1, set()),
        (2, 2, {(2, 2)}),
        (3, 3, {(2, 2), (3, 3)}),
        (8, 8, {(2, 2), (4, 4), (8, 8)}),
        (8, 4, {(2, 2), (4, 4), (2, 1), (8, 4)}),
        (6, 2, {(2, 2), (2, 1), (3, 1), (4, 2), (6, 2)}),
    ],
)
def test_groups_double_up_to_a_node_and_across_nodes(
    world_size: int, per_node: int, groups: set[tuple[int, int]]
) -> None:
    place = Place(world_size=world_size, processes_per_node=per_node)
    alone = [one for one in ladder("cpu", place).collectives if one.is_alone]

    assert {(one.world_size, one.ranks_per_node) for one in alone} == groups
    assert all(isinstance(group_shape(one, place), GroupShape) for one in ladder("cpu", place).collectives)


def test_all_groups_of_a_level_reduce_at_once() -> None:
    place = Place(world_size=8, processes_per_node=4)
    at_once = [one for one in ladder("cpu", place).collectives if not one.is_alone]

    assert {(one.world_size, one.ranks_per_node, one.groups) for one in at_once} == {
        (2, 2, 4),
        (4, 4, 2),
        (2, 1, 4),
    }


def test_every_collective_is_on_the_ladder() -> None:
    place = Place(world_size=2, processes_per_node=2)

    assert {one.operation for one in ladder("cpu", place).collectives} == set(Collective)


def test_payloads_have_whole_elements_for_each_rank() -> None:
    place = Place(world_size=3, processes_per_node=3)

    assert all(one.payload_bytes % (4 * one.world_size) == 0 for one in ladder("cpu", place).collectives)


def test_drive_is_measured_where_there_is_one() -> None:
    shapes = default_shapes("cpu", dtype="fp32", place=Place(), drive_bytes=2**30)

    assert [one.operation for one in shapes.transfers][-2:] == ["nvme_write", "nvme_read"]
    assert not any(one.operation.startswith("nvme") for one in ladder("cpu").transfers)


def test_products_in_other_precisions_follow() -> None:
    shapes = default_shapes("cuda", dtype="bf16", place=Place(), other_precisions=("fp8",))
    narrow = [kernel for kernel in shapes.kernels if kernel.dtype == "fp8"]

    assert {kernel.operator for kernel in narrow} == {"matrix_product"}
    assert {kernel.phase for kernel in narrow} == {
        Phase.FORWARD,
        Phase.INPUT_GRADIENT,
        Phase.WEIGHT_GRADIENT,
    }


def test_ladder_of_a_processor_is_short() -> None:
    assert len(ladder("cpu", Place(world_size=2, processes_per_node=2)).interleaved()) < 160
