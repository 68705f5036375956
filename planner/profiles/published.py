"""Rows of the published tables in the words of a profile: names, units and shapes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from planner.measurements import REQUIRED_DIMS

OPERATORS: Final = {
    "gemm": "matrix_product",
    "bmm": "batched_matrix_product",
    "grouped_gemm": "grouped_matrix_product",
    "act_mul": "gated_activation",
    "layernorm": "layer_norm",
    "rmsnorm": "rms_norm",
    "rope": "rotary",
    "optimizer_adam_gpu": "adam",
    "gated_deltanet/causal_conv1d_fn": "causal_conv1d",
    "gated_deltanet/chunk_gated_delta_rule_flashinfer": "gated_delta_rule",
    "gated_deltanet/chunk_gated_delta_rule_triton": "gated_delta_rule",
    "mamba2/causal_conv1d_fn": "mamba2_causal_conv1d",
}
"""Operators that have another name here, by kernel where an operator has several; all others keep theirs."""
PHASES: Final = {
    "fwd": "forward",
    "bwd": "backward",
    "bwd_dgrad": "input_gradient",
    "bwd_wgrad": "weight_gradient",
    "opt": "optimizer",
}
OPERATIONS: Final = {"send_recv": "send_receive"}
DIMS: Final[Mapping[str, Mapping[str, str]]] = {
    "batched_matrix_product": {"b": "batch"},
    "grouped_matrix_product": {"g": "groups"},
    "attention": {
        "b": "batch",
        "s": "sequence",
        "h": "heads",
        "kvh": "kv_heads",
        "d": "head_dim",
        "dv": "value_dim",
    },
    "mla_attention": {"b": "batch", "s": "sequence", "h": "heads"},
    "rotary": {"kvh": "kv_heads", "d": "head_dim"},
}
LOADS: Final = {"balanced": 0, "power_law_1.2": 12}
"""How tokens spread over experts, as tenths of the power law's exponent."""


def kernel_rows(rows: Iterable[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield kernels; marks of a source that are no sizes go into the reference to it."""
    for row in rows:
        shape: dict[str, Any] = json.loads(row["shape"])
        operator = OPERATORS.get(f"{row['op']}/{shape.get('kernel')}") or OPERATORS.get(row["op"], row["op"])
        sizes = _sizes(operator, shape)
        yield {
            "operator": operator,
            "dtype": row["dtype"],
            "phase": PHASES[row["phase"]],
            "shape": sizes,
            "seconds": _seconds(row),
            "spread_seconds": None,
            "source": row["source"],
            "source_ref": row["source_ref"] + _marks(operator, shape, sizes),
        }


def collective_rows(rows: Iterable[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield collectives; their payloads are counted alike in both forms."""
    for row in rows:
        yield {
            "operation": OPERATIONS.get(row["op"], row["op"]),
            "world_size": int(row["world"]),
            "ranks_per_node": int(row["ranks_per_node"]),
            "payload_bytes": int(float(row["bytes"])),
            "seconds": _seconds(row),
            "spread_seconds": None,
            "dtype": row["dtype"] or None,
            "algorithm": row["algo"] or None,
            "intra_link": row["intra_link"] or None,
            "inter_link": row["inter_link"] or None,
            "source": row["source"],
            "source_ref": row["source_ref"],
        }


def transfer_rows(rows: Iterable[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield copies; what was copied on goes into the reference to the source."""
    for row in rows:
        yield {
            "operation": row["op"],
            "payload_bytes": int(row["bytes"]) if row["bytes"] else None,
            "bytes_per_second": round(float(row["bandwidth_gbps"]) * 1e9),
            "source": row["source"],
            "source_ref": ": ".join([row["source_ref"], *_place(row)]),
        }


def _seconds(row: Mapping[str, str]) -> float:
    return round(float(row["latency_us"]) * 1e-6, 12)


def _place(row: Mapping[str, str]) -> list[str]:
    where = row["device_or_host"]
    return [part for part in (where if where.startswith("host:") else "", row.get("detail", "")) if part]


def _sizes(operator: str, shape: Mapping[str, Any]) -> dict[str, int]:
    names = DIMS.get(operator, {})
    sizes = {names.get(dim, dim): size for dim, size in shape.items() if isinstance(size, int)}
    if operator == "attention":
        sizes.setdefault("value_dim", sizes["head_dim"])
        sizes.setdefault("causal", 0)
    if "dist" in shape:
        sizes["load_exponent_tenths"] = LOADS[shape["dist"]]
    if operator in REQUIRED_DIMS:
        # A mark of the source (bias, accumulation) would make a table of its own.
        return {dim: size for dim, size in sizes.items() if dim in REQUIRED_DIMS[operator]}
    return sizes


def _marks(operator: str, shape: Mapping[str, Any], sizes: Mapping[str, int]) -> str:
    """Return what a shape says beside sizes, as words: " layout=NT acc=fp32"."""
    names = DIMS.get(operator, {})
    marks = [f" {key}={value}" for key, value in shape.items() if names.get(key, key) not in sizes]
    return "".join(mark for mark in marks if not mark.startswith(" dist="))
