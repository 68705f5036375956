"""Makes the built-in profiles from a folder of published measurements.

``python -m planner.profiles.build FOLDER``, where FOLDER holds kernels.csv.gz, collectives.csv.gz and
memory_links.csv with times in microseconds and rates in 10^9 B/s. Rows keep their source; what the
planner does not price yet (state-space kernels, whole layers) is left out.
"""

import csv
import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from planner.measurements import REQUIRED_DIMS
from planner.profile import FORMAT
from planner.profile_columns import columns_from_rows
from planner.profile_document import read_rows

SYSTEMS: Final = {
    "a100-sxm-40gb": "A100-SXM4-40GB",
    "a100-sxm-80gb": "A100-SXM4-80GB",
    "h100-sxm": "H100-SXM5-80GB",
    "h200-sxm": "H200-SXM-141GB",
    "b200": "B200-SXM-180GB",
}
"""Name of the profile and the device that its rows were measured on."""
RELATIVES: Final = {"A100-SXM4-40GB": ("A100-PCIE-80GB",), "A100-SXM4-80GB": ("A100-PCIE-80GB",)}
"""Devices with the same chip under another power limit: rows kept under a dtype-true relative name."""
OPERATORS: Final = {
    "gemm": "matrix_product",
    "bmm": "batched_matrix_product",
    "grouped_gemm": "grouped_matrix_product",
    "attention": "attention",
    "act_mul": "gated_activation",
    "add": "add",
    "bias_dropout_add": "bias_dropout_add",
    "dropout": "dropout",
    "embedding": "embedding",
    "gelu": "gelu",
    "layernorm": "layer_norm",
    "rmsnorm": "rms_norm",
    "rope": "rotary",
    "softmax": "softmax",
    "optimizer_adam_gpu": "adam",
}
PHASES: Final = {
    "fwd": "forward",
    "bwd": "backward",
    "bwd_dgrad": "input_gradient",
    "bwd_wgrad": "weight_gradient",
    "opt": "optimizer",
}
OPERATIONS: Final = {"send_recv": "send_receive"}
DIMS: Final = {
    "matrix_product": {},
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
    "rotary": {"kvh": "kv_heads", "d": "head_dim"},
}
LICENCES: Final = {
    "aiconfigurator": "Apache-2.0",
    "NeuSight": "MIT",
    "sailor": "MIT",
    "vidur": "MIT",
    "SimuMax": "Apache-2.0",
    "vTrain": "MIT",
    "stas00": "CC-BY-SA-4.0 (figures only)",
    "mag-": "figures only",
    "aws-samples": "MIT-0",
    "coreweave": "figures only",
    "NVIDIA/nvbandwidth": "Apache-2.0",
    "github.com": "public posts, figures only",
}
BURST_SOURCES: Final = ("aiconfigurator", "vidur", "stas00", "mag-")
"""Sources that time short bursts on a cool device, rather than kernels inside a running training step."""
PICOSECONDS: Final = 1e-6


def main(folder: Path) -> None:
    """Write one compressed file per system beside this module."""
    for system, device in SYSTEMS.items():
        document = profile_document(folder, name=f"{system}/published", device=device)
        rows = read_rows(document)
        assert not rows.refused, rows.refused[:3]
        tables = {key: getattr(rows, key) for key in ("kernels", "collectives", "transfers", "sources")}
        packed = json.dumps(columns_from_rows(document, tables=tables), separators=(",", ":"))
        # No time stamp inside, so that the same figures give the same file.
        target = Path(__file__).parent / f"{system}.json.gz"
        target.write_bytes(gzip.compress(packed.encode(), compresslevel=9, mtime=0))
        sys.stdout.write(f"{target.name}: {len(document['kernels'])} kernels, {target.stat().st_size} B\n")


def profile_document(folder: Path, *, name: str, device: str) -> dict[str, Any]:
    """Return the profile document of one device."""
    with gzip.open(folder / "kernels.csv.gz", "rt") as file:
        kernels = list(_kernels(row for row in csv.DictReader(file) if row["device"] == device))
    with gzip.open(folder / "collectives.csv.gz", "rt") as file:
        collectives = list(_collectives(row for row in csv.DictReader(file) if row["device"] == device))
    with (folder / "memory_links.csv").open() as file:
        transfers = list(_transfers(row for row in csv.DictReader(file) if row["device_or_host"] == device))
    used = sorted({row["source"] for row in (*kernels, *collectives, *transfers)})
    return {
        "format": FORMAT,
        "name": name,
        "device": device,
        "software": {},
        "facts": {
            "licences": {source: _licence(source) for source in used},
            "burst_sources": [source for source in used if source.startswith(BURST_SOURCES)],
        },
        "kernels": kernels,
        "collectives": collectives,
        "transfers": transfers,
    }


def _licence(source: str) -> str:
    return next(licence for prefix, licence in LICENCES.items() if source.startswith(prefix))


def _kernels(rows: Iterable[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        operator = OPERATORS.get(row["op"])
        if operator is not None:
            yield {
                "operator": operator,
                "dtype": row["dtype"],
                "phase": PHASES[row["phase"]],
                "shape": _shape(operator, json.loads(row["shape"])),
                "seconds": round(float(row["latency_us"]) * 1e-6, 12),
                "spread_seconds": None,
                "source": row["source"],
                "source_ref": row["source_ref"],
            }


def _shape(operator: str, shape: Mapping[str, Any]) -> dict[str, int]:
    names = DIMS.get(operator, {})
    dims = {names.get(dim, dim): int(size) for dim, size in shape.items() if isinstance(size, int)}
    if operator == "attention":
        dims.setdefault("value_dim", dims["head_dim"])
        dims.setdefault("causal", 0)
    if operator in REQUIRED_DIMS and operator != "grouped_matrix_product":
        # A layout or a mark of the source would make a table of its own.
        dims = {dim: size for dim, size in dims.items() if dim in REQUIRED_DIMS[operator]}
    return dims


def _collectives(rows: Iterable[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {
            "operation": OPERATIONS.get(row["op"], row["op"]),
            "world_size": int(row["world"]),
            "ranks_per_node": int(row["ranks_per_node"]),
            "payload_bytes": int(float(row["bytes"])),
            "seconds": round(float(row["latency_us"]) * 1e-6, 12),
            "spread_seconds": None,
            "dtype": row["dtype"] or None,
            "algorithm": row["algo"] or None,
            "intra_link": row["intra_link"] or None,
            "inter_link": row["inter_link"] or None,
            "source": row["source"],
            "source_ref": row["source_ref"],
        }


def _transfers(rows: Iterable[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {
            "operation": row["op"],
            "payload_bytes": int(row["bytes"]) if row["bytes"] else None,
            "bytes_per_second": round(float(row["bandwidth_gbps"]) * 1e9),
            "source": row["source"],
            "source_ref": row["source_ref"],
        }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
