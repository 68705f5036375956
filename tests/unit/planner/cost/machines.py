"""Devices, groups and profiles that cost tests are made of."""

from planner.cluster import Device, Level, NodeGroup
from planner.profile import Profile
from tests.unit.planner.profile_documents import collective_row, pass_row, product_row, profile_document

BENCH_FLOPS = 1e11
"""What the bench device reaches on large products."""
BENCH_BANDWIDTH = 2e10

SHAPES = [(m, n, k) for m in (64, 512, 2048) for n in (128, 1024) for k in (128, 1024)]


def bench_device(**changes: object) -> Device:
    facts: dict[str, object] = {
        "name": "bench",
        "memory_bytes": 2.0**34,
        "peak_flops_per_second": {"fp32": 1.1 * BENCH_FLOPS},
        "memory_bandwidth_bytes_per_second": BENCH_BANDWIDTH,
        "architecture": "cpu",
    }
    return Device(**(facts | changes))  # type: ignore[arg-type]


def bench_seconds(m: int, n: int, k: int) -> float:
    return 5e-6 + 2 * m * n * k / BENCH_FLOPS + 4 * (m * k + k * n + m * n) / (10 * BENCH_BANDWIDTH)


def bench_profile(*, without: tuple[int, int, int] | None = None) -> Profile:
    """A machine as our own profiler measures it: some products, adds, and gloo all-reduces."""
    products = [product_row(*shape, bench_seconds(*shape)) for shape in SHAPES if shape != without]
    adds = [pass_row("add", size, 2e-6 + 12 * size / BENCH_BANDWIDTH) for size in (2**16, 2**20, 2**24)]
    reduces = [
        collective_row(ranks, payload, 1e-4 * ranks + payload / 1e9 * (ranks - 1) / ranks)
        for ranks in (2, 4)
        for payload in (2**10, 2**16, 2**22)
    ]
    return Profile.from_document(profile_document(kernels=[*products, *adds], collectives=reduces))


def node_group(
    device: Device,
    *,
    num_nodes: int = 4,
    devices_per_node: int = 8,
    node_bandwidth: float = 300e9,
    network_bandwidth: float = 25e9,
    network: str = "infiniband-hdr",
) -> NodeGroup:
    levels = (
        Level(
            name="nvlink",
            devices=devices_per_node,
            bandwidth_bytes_per_second=node_bandwidth,
            latency_seconds=2e-6,
        ),
        Level(
            name=network,
            devices=num_nodes * devices_per_node,
            bandwidth_bytes_per_second=network_bandwidth,
            latency_seconds=5e-6,
        ),
    )
    return NodeGroup(
        name="group", num_nodes=num_nodes, devices_per_node=devices_per_node, device=device, levels=levels
    )
