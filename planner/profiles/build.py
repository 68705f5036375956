"""Makes the built-in profiles from a folder of published measurements.

``python -m planner.profiles.build FOLDER [TARGET]``, where FOLDER holds kernels.csv.gz,
collectives.csv.gz and memory_links.csv with times in microseconds and rates in 10^9 B/s. Rows keep
their source; what the planner does not price yet (state-space kernels, whole layers) is left out, and
so are rows that show how a host launches rather than how a device computes.
"""

import csv
import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from planner.devices import device_facts
from planner.measurements import REQUIRED_DIMS
from planner.profile import FORMAT
from planner.profile_columns import columns_from_rows
from planner.profile_document import read_rows

HERE: Final = Path(__file__).parent
SYSTEMS: Final = {
    "a100-sxm-40gb": "A100-SXM4-40GB",
    "a100-sxm-80gb": "A100-SXM4-80GB",
    "h100-sxm": "H100-SXM5-80GB",
    "h200-sxm": "H200-SXM-141GB",
    "b200": "B200-SXM-180GB",
}
"""Name of the profile and the device that its rows were measured on."""
SAME_CHIP: Final = {"A100-SXM4-40GB": "A100-SXM4-80GB"}
"""Devices with the chip, power limit and links of another: its products, attention and collectives count."""
MEMORY_BOUND_SHARE: Final = 0.6
"""Beyond this share of its bandwidth the memory shows in the time of a product."""
HALF_BYTES: Final = 2
"""Bytes of an operand element in sixteen bits."""
RELATIVE_OPERATORS: Final = frozenset({"matrix_product", "attention"})
OPERATORS: Final = {
    "gemm": "matrix_product",
    "bmm": "batched_matrix_product",
    "grouped_gemm": "grouped_matrix_product",
    "attention": "attention",
    "act_mul": "gated_activation",
    "add": "add",
    "dropout": "dropout",
    "embedding": "embedding",
    "gelu": "gelu",
    "layernorm": "layer_norm",
    "rmsnorm": "rms_norm",
    "rope": "rotary",
    "softmax": "softmax",
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
EAGER_SOURCES: Final = ("NeuSight", "sailor")
"""Sources whose memory-bound passes run as an eager framework runs them, several kernels for one pass."""
LAUNCH_BOUND: Final = ("sailor", 200.0)
"""A source whose times hold the host's launch, and the microseconds above which that no longer shows."""


def main(folder: Path, target: Path = HERE) -> None:
    """Write one compressed file per system, beside this module unless told otherwise."""
    for system, device in SYSTEMS.items():
        document = profile_document(folder, name=f"{system}/published", device=device)
        packed = packed_profile(document)
        (target / f"{system}.json.gz").write_bytes(packed)
        sys.stdout.write(f"{system}: {len(document['kernels'])} kernels, {len(packed)} B\n")


def packed_profile(document: Mapping[str, Any]) -> bytes:
    """Return a profile document as the package ships it; equal figures give equal bytes."""
    rows = read_rows(document)
    assert not rows.refused, rows.refused[:3]
    tables = {key: getattr(rows, key) for key in ("kernels", "collectives", "transfers", "sources")}
    columns = json.dumps(columns_from_rows(document, tables=tables), separators=(",", ":"))
    return gzip.compress(columns.encode(), compresslevel=9, mtime=0)


def profile_document(folder: Path, *, name: str, device: str) -> dict[str, Any]:
    """Return the profile document of one device."""
    relative = SAME_CHIP.get(device)
    kernels = list(_kernels(_rows(folder / "kernels.csv.gz", device=device)))
    collectives = list(_collectives(_rows(folder / "collectives.csv.gz", device=device)))
    transfers = list(_transfers(_rows(folder / "memory_links.csv", device=device)))
    relatives = [] if relative is None else _relatives(folder, device=device, relative=relative)
    kernels += [row for row in relatives if "operator" in row]
    collectives += [row for row in relatives if "operation" in row]
    used = sorted({row["source"] for row in (*kernels, *collectives, *transfers)})
    return {
        "format": FORMAT,
        "name": name,
        "device": device,
        "software": {},
        "facts": {
            "licences": {source: _licence(source) for source in used},
            "burst_sources": [source for source in used if source.startswith(BURST_SOURCES)],
            "eager_sources": [source for source in used if source.startswith(EAGER_SOURCES)],
            "relative_sources": sorted({row["source"] for row in relatives}),
            "link_bandwidth_bytes_per_second": device_facts(device)["link"]["bandwidth_bytes_per_second"],
        },
        "kernels": kernels,
        "collectives": collectives,
        "transfers": transfers,
    }


def _rows(file: Path, *, device: str) -> Iterator[Mapping[str, str]]:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        for row in csv.DictReader(lines):
            if row.get("device", row.get("device_or_host")) == device:
                yield row


def _relatives(folder: Path, *, device: str, relative: str) -> list[dict[str, Any]]:
    """Return what was measured on another device with the same chip, marked as such in its source.

    Only products that the device's own memory, which may be slower, would not hold up.
    """
    kernels = _kernels(_rows(folder / "kernels.csv.gz", device=relative))
    collectives = _collectives(_rows(folder / "collectives.csv.gz", device=relative))
    bandwidth = device_facts(device)["memory_bandwidth_bytes_per_second"]
    wanted = [
        row
        for row in kernels
        if row["operator"] in RELATIVE_OPERATORS and not _is_memory_bound(row, bandwidth=bandwidth)
    ]
    inside = [row for row in collectives if row["inter_link"] is None]
    return [row | {"source": f"{row['source']}, on {relative}"} for row in (*wanted, *inside)]


def _is_memory_bound(row: Mapping[str, Any], *, bandwidth: float) -> bool:
    """Tell whether a product moves its operands fast enough for a slower memory to hold it up."""
    if row["operator"] != "matrix_product":
        return False
    m, n, k = (row["shape"][dim] for dim in "mnk")
    rate: float = HALF_BYTES * (m * k + k * n + m * n) / row["seconds"]
    return rate > MEMORY_BOUND_SHARE * bandwidth


def _licence(source: str) -> str:
    return next(licence for prefix, licence in LICENCES.items() if source.startswith(prefix))


def _kernels(rows: Iterable[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        operator = OPERATORS.get(row["op"])
        if operator is not None and not _is_launch(row):
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


def _is_launch(row: Mapping[str, str]) -> bool:
    source, microseconds = LAUNCH_BOUND
    return row["source"].startswith(source) and float(row["latency_us"]) < microseconds


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
    main(*map(Path, sys.argv[1:]))
