"""What a layout keeps on the hosts of its nodes, beside what they hold."""

from collections import Counter
from math import ceil

from planner.cost.geometry import stages_of_nodes
from planner.cost.layout_costs import LayoutCosts
from planner.strategy import Mesh
from planner.units import Bytes
from planner.workload.body import Body

Nodes = tuple[tuple[tuple[int, int], ...], ...]
"""For every kind of node its stages, each with how many of its devices are there."""


def states_per_node(costs: LayoutCosts, body: Body, mesh: Mesh, *, devices_per_node: int) -> Bytes:
    """Return the states that all stages keep on hosts, per node: on average where nodes differ."""
    size = len(costs.layers) // len(body.classes)
    counts = Counter(body.sequence)
    states = sum(count * costs.layers[number * size].host_bytes for number, count in counts.items())
    whole = states + costs.first.host_bytes + costs.last.host_bytes
    return whole * (mesh.world_size // mesh.pipeline_parallel) / ceil(mesh.world_size / devices_per_node)


def binding_hosts(
    costs: LayoutCosts,
    mesh: Mesh,
    *,
    most_kept: int,
    num_layers: int,
    devices_per_node: int,
    limit_bytes: int,
) -> Nodes:
    """Return the kinds of nodes; none where no host can overflow, whatever stages hold.

    ``most_kept`` micro-batches may keep activations at once.
    """
    most = max(part.host_bytes + most_kept * part.host_saved_bytes for part in costs.layers) * num_layers
    whole = most + costs.first.host_bytes + costs.last.host_bytes
    if whole * devices_per_node <= limit_bytes:
        return ()
    return stages_of_nodes(mesh, devices_per_node=devices_per_node)
