import pytest

from planner.cluster_presets import cluster_from_preset
from planner.cost.mesh_links import further_nodes
from planner.strategy import Mesh


@pytest.mark.parametrize(
    ("cluster", "devices", "tensor_parallel", "further"),
    [
        ("p5", 64, 1, 0),
        ("p5", 64, 8, 0),
        ("p5", 64, 16, 1),
        ("p5", 64, 32, 3),
        # Trays of four that links join as they do inside one.
        ("gb200-nvl72", 72, 8, 0),
    ],
)
def test_a_tensor_parallel_group_reaches_over_nodes(
    cluster: str, devices: int, tensor_parallel: int, further: int
) -> None:
    group = cluster_from_preset(cluster, devices).node_groups[0]
    mesh = Mesh(tensor_parallel=tensor_parallel, data_parallel=devices // tensor_parallel)
    assert further_nodes(group, mesh) == further
