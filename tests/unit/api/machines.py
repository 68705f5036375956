"""A profile of a small machine, as the profiler writes it."""

from typing import Any

FACTS = {
    "device": {"name": "cpu-small", "kind": "cpu", "memory_bytes": 8 * 2**30, "peak_flops_per_second": None},
    "processes": 2,
    "processes_per_node": 2,
    "cpu_model": "Small CPU",
}
ORIGIN = {"source": "meshplan profiler", "source_ref": "2026-01-01"}
PRODUCTS = ((128, 256, 256), (1024, 1024, 1024))
FLOPS_PER_SECOND = 5e10
BYTES_PER_SECOND = 1e10
ELEMENTS = 2**20
PAYLOADS = (1024, 2**24)
LINK_BYTES_PER_SECOND = 1e9
START_SECONDS = 1e-4


def machine_profile(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any part of a document
    """Return a profile in which products and links run at round rates."""
    document = {
        "format": "meshplan-profile/1",
        "name": "cpu-small/measured",
        "device": "cpu-small",
        "software": {"torch": "2.13.0"},
        "facts": FACTS,
        "kernels": [*map(_product, PRODUCTS), _add()],
        "collectives": list(map(_all_reduce, PAYLOADS)),
        "transfers": [],
    }
    return document | changes


def _product(sizes: tuple[int, int, int]) -> dict[str, Any]:
    m, n, k = sizes
    return {
        "operator": "matrix_product",
        "dtype": "fp32",
        "phase": "forward",
        "shape": {"m": m, "n": n, "k": k},
        "seconds": 2 * m * n * k / FLOPS_PER_SECOND,
        "spread_seconds": None,
        **ORIGIN,
    }


def _add() -> dict[str, Any]:
    return {
        "operator": "add",
        "dtype": "fp32",
        "phase": "forward",
        "shape": {"elems": ELEMENTS},
        "seconds": 3 * 4 * ELEMENTS / BYTES_PER_SECOND,
        "spread_seconds": None,
        **ORIGIN,
    }


def _all_reduce(payload_bytes: int) -> dict[str, Any]:
    return {
        "operation": "all_reduce",
        "world_size": 2,
        "ranks_per_node": 2,
        "payload_bytes": payload_bytes,
        "seconds": START_SECONDS + payload_bytes / LINK_BYTES_PER_SECOND,
        "spread_seconds": None,
        "dtype": "fp32",
        "algorithm": "gloo",
        "intra_link": None,
        "inter_link": None,
        **ORIGIN,
    }
