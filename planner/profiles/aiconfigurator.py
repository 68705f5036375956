"""Measurements that come with aiconfigurator, read from its own package as profiles.

Its tables lie in ``systems/data/SYSTEM/KIND/STACK/VERSION/NAME_perf.parquet`` (older ones are CSV files
with the suffix .txt): times in milliseconds, collectives counted in elements.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

from planner.devices import device_by_name, device_facts
from planner.errors import InvalidRequest, UnknownName
from planner.profile import FORMAT

Cells = Mapping[str, Any]
ReadTable = Callable[[Path], Iterable[Cells]]
"""Reads one table, row by row."""

PACKAGES: Final = ("aiconfigurator_core", "aiconfigurator")
SUFFIXES: Final = (".parquet", ".txt", ".csv")
SOURCE: Final = "aiconfigurator (Apache-2.0)"
MILLISECOND: Final = 1e-3
DTYPES: Final = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
}
DTYPES_ELSEWHERE: Final = {"nvfp4": "nvfp4", "mxfp8": "mxfp8", "float32": "fp32"}
ELEMENT_BYTES: Final = {"fp16": 2, "bf16": 2, "fp32": 4}
LEAST_ROWS_OF_A: Final = 128
LEAST_WIDTH: Final = 512
LEAST_SEQUENCE: Final = 512
LEAST_TOKENS: Final = 1024
"""Narrower products and shorter sequences belong to inference."""
COLLECTIVES: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "alltoall", "all_to_all"})


def installed_folder() -> Path | None:
    """Return the folder of tables of the installed package, None where it is not installed."""
    for package in PACKAGES:
        spec = find_spec(package)
        for location in spec.submodule_search_locations or () if spec else ():
            folder = Path(location) / "systems" / "data"
            if folder.is_dir():
                return folder
    return None


def profile_documents(
    folder: Path, *, devices: Iterable[str] | None = None, read: ReadTable | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a profile document for each system of a folder, or for those with one of the devices.

    Only rows that training can meet are taken. Raises InvalidRequest for a folder without tables.
    """
    wanted = None if devices is None else frozenset(devices)
    systems = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if not systems:
        raise InvalidRequest(f"{folder} holds no tables of aiconfigurator", pointer="")
    for system in systems:
        document = _document(system, wanted=wanted, read=read or read_table)
        if document is not None:
            yield document


def read_table(path: Path) -> Iterable[Cells]:
    """Return the rows of a table; InvalidRequest where nothing is installed that reads its format."""
    if path.suffix != ".parquet":
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    if find_spec("pyarrow") is None:
        raise InvalidRequest(
            "reading these tables needs pyarrow, which aiconfigurator-core brings", pointer=""
        )
    table = import_module("pyarrow.parquet").read_table(path)
    rows: list[Cells] = table.to_pylist()
    return rows


def _document(system: Path, *, wanted: frozenset[str] | None, read: ReadTable) -> dict[str, Any] | None:
    """Return the profile of one system; None for a device that is not known, or not wanted."""
    kernels: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    collectives: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    device: str | None = None
    for path, kernel in _tables(system):
        for cells in read(path):
            device = device or _device(str(cells["device"]))
            if device is None or (wanted is not None and device not in wanted):
                return None
            ref = f"{path.relative_to(system.parent)}#{cells['kernel_source']}"
            if kernel is not None:
                row = kernel(cells)
                if row is not None:
                    kernels[*row, ref].append(float(cells["latency"]))
            elif cells["op_name"] in COLLECTIVES:
                collectives[*_collective(cells), ref].append(float(cells["latency"]))
    return None if device is None else _profile(system.name, device, kernels, collectives)


def _profile(
    system: str,
    device: str,
    kernels: Mapping[tuple[Any, ...], list[float]],
    collectives: Mapping[tuple[Any, ...], list[float]],
) -> dict[str, Any]:
    link = device_facts(device)["link"]["bandwidth_bytes_per_second"]
    return {
        "format": FORMAT,
        "name": f"{system.replace('_', '-')}/aiconfigurator",
        "device": device,
        "software": {},
        "facts": {
            "licences": {SOURCE: "Apache-2.0"},
            "burst_sources": [SOURCE],
            "link_bandwidth_bytes_per_second": link
            or device_facts(device).get("host_link_bytes_per_second", 0.0),
        },
        "kernels": [
            {
                "operator": operator,
                "dtype": dtype,
                "phase": "forward",
                "shape": dict(shape),
                **_measured(latencies, ref),
            }
            for (operator, dtype, shape, ref), latencies in kernels.items()
        ],
        "collectives": [
            {
                "operation": operation,
                "world_size": ranks,
                "ranks_per_node": ranks,
                "payload_bytes": payload,
                "dtype": dtype,
                "algorithm": ref.rpartition("#")[2],
                "intra_link": None,
                "inter_link": None,
                **_measured(latencies, ref),
            }
            for (operation, ranks, payload, dtype, ref), latencies in collectives.items()
        ],
        "transfers": [],
    }


def _measured(latencies: Iterable[float], ref: str) -> dict[str, Any]:
    """Return the median of what was measured several times, and where."""
    return {
        "seconds": median(latencies) * MILLISECOND,
        "spread_seconds": None,
        "source": SOURCE,
        "source_ref": ref,
    }


Kernel = Callable[[Cells], tuple[Any, ...] | None]
"""Returns operator, format and shape of a row; None for one that training does not meet."""


def _tables(system: Path) -> Iterator[tuple[Path, Kernel | None]]:
    """Yield the tables that are read, with what reads their kernels (None: collectives)."""
    for path in sorted(system.rglob("*_perf.*")):
        stem = path.name.partition(".")[0]
        if path.suffix in SUFFIXES and stem in KERNELS:
            yield path, KERNELS[stem]


def _product(cells: Cells) -> tuple[Any, ...] | None:
    m, n, k = (int(cells[dim]) for dim in "mnk")
    dtype = _dtype(cells["gemm_dtype"])
    on_ladder = all(map(_is_on_ladder, (m, n, k)))
    if dtype is None or m < LEAST_ROWS_OF_A or min(n, k) < LEAST_WIDTH or not on_ladder:
        return None
    return "matrix_product", dtype, (("m", m), ("n", n), ("k", k))


def _core(cells: Cells) -> tuple[Any, ...] | None:
    """Return a prefill core without a cached prefix, a window or a narrow cache."""
    dtype, sequence = _dtype(cells["attn_dtype"]), int(cells["isl"])
    narrow = _dtype(cells["kv_cache_dtype"]) != dtype
    if dtype is None or narrow or sequence < LEAST_SEQUENCE or not _is_on_ladder(sequence, bits=1):
        return None
    if int(cells.get("step") or 0) or int(cells.get("window_size") or 0):
        return None
    head_dim = int(cells["head_dim"])
    shape = {
        "batch": int(cells["batch_size"]),
        "sequence": sequence,
        "heads": int(cells["num_heads"]),
        "kv_heads": int(cells["num_key_value_heads"]),
        "head_dim": head_dim,
        "value_dim": head_dim,
        "causal": 1,
    }
    return "attention", dtype, tuple(shape.items())


def _experts(cells: Cells) -> tuple[Any, ...] | None:
    dtype, tokens = _dtype(cells["moe_dtype"]), int(cells["num_tokens"])
    load = re.fullmatch(r"power_law_([\d.]+)", str(cells["distribution"]))
    is_split = int(cells["moe_tp_size"]) > 1
    if dtype is None or tokens < LEAST_TOKENS or is_split or not _is_on_ladder(tokens, bits=1):
        return None
    shape = {
        "tokens": tokens,
        "hidden": int(cells["hidden_size"]),
        "inter": int(cells["inter_size"]),
        "topk": int(cells["topk"]),
        "experts": int(cells["num_experts"]),
        "tp": int(cells["moe_tp_size"]),
        "ep": int(cells["moe_ep_size"]),
        "load_exponent_tenths": round(10 * float(load[1])) if load else 0,
    }
    return "moe_ffn", dtype, tuple(shape.items())


def _collective(cells: Cells) -> tuple[Any, ...]:
    """Return operation, ranks, bytes and format: messages are counted in elements."""
    dtype = _dtype(cells["nccl_dtype"]) or "fp16"
    operation = {"alltoall": "all_to_all"}.get(cells["op_name"], cells["op_name"])
    payload = int(cells["message_size"]) * ELEMENT_BYTES.get(dtype, 1)
    return operation, int(cells["num_gpus"]), payload, dtype


KERNELS: Final[Mapping[str, Kernel | None]] = {
    "gemm_perf": _product,
    "context_attention_perf": _core,
    "moe_perf": _experts,
    "nccl_perf": None,
    "oneccl_perf": None,
}
"""Tables that are read, by name."""


def _device(name: str) -> str | None:
    try:
        return device_by_name(name).name
    except UnknownName:
        return None


def _dtype(name: object) -> str | None:
    return (DTYPES | DTYPES_ELSEWHERE).get(str(name))


def _is_on_ladder(size: int, *, bits: int = 2) -> bool:
    """Tell whether a size has few bits: 128, 192, 256, 384, … show how time grows, without all between."""
    return size.bit_count() <= bits
