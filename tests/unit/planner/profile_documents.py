"""Profile documents that tests are made of."""

from collections.abc import Sequence
from typing import Any

FORMAT = "meshplan-profile/1"


def profile_document(
    *,
    kernels: Sequence[dict[str, Any]] = (),
    collectives: Sequence[dict[str, Any]] = (),
    transfers: Sequence[dict[str, Any]] = (),
    name: str = "bench/measured",
    device: str = "bench",
    facts: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": name,
        "device": device,
        "software": {"torch": "2.13"},
        "facts": facts or {},
        "kernels": list(kernels),
        "collectives": list(collectives),
        "transfers": list(transfers),
    }


def product_row(m: int, n: int, k: int, seconds: float, **other: object) -> dict[str, Any]:
    row = {"operator": "matrix_product", "dtype": "fp32", "phase": "forward", "spread_seconds": None}
    return {**row, "shape": {"m": m, "n": n, "k": k}, "seconds": seconds, "source": "test", **other}


def pass_row(operator: str, elements: int, seconds: float, **other: object) -> dict[str, Any]:
    row = {"operator": operator, "dtype": "fp32", "phase": "forward", "spread_seconds": None}
    return {**row, "shape": {"elems": elements}, "seconds": seconds, "source": "test", **other}


def collective_row(world_size: int, payload_bytes: int, seconds: float, **other: object) -> dict[str, Any]:
    return {
        "operation": "all_reduce",
        "world_size": world_size,
        "ranks_per_node": world_size,
        "payload_bytes": payload_bytes,
        "seconds": seconds,
        "spread_seconds": None,
        "dtype": "fp32",
        "algorithm": "gloo",
        "intra_link": None,
        "inter_link": None,
        "source": "test",
        **other,
    }
