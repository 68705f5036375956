"""Makes the built-in profiles from a folder of published measurements.

``python -m planner.profiles.build FOLDER [TARGET]``, where FOLDER holds kernels.csv.gz,
collectives.csv.gz and memory_links.csv with times in microseconds and rates in 10^9 B/s. Every row is
taken, with its source; the facts of a profile say how each source measured.
"""

import csv
import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from planner.devices import device_facts
from planner.profile import FORMAT
from planner.profile_columns import columns_from_rows
from planner.profile_document import read_rows
from planner.profiles.published import collective_rows, kernel_rows, transfer_rows
from planner.profiles.systems import HOST_PREFIX, HOSTS, SYSTEMS

HERE: Final = Path(__file__).parent
INDEX: Final = "index.json"
FILES: Final = {
    "kernels.csv.gz": kernel_rows,
    "collectives.csv.gz": collective_rows,
    "memory_links.csv": transfer_rows,
}
"""Published tables, and what makes their rows those of a profile."""
LICENCES: Final = {
    "aiconfigurator": "Apache-2.0",
    "NeuSight": "MIT",
    "ROCm/aiter": "MIT",
    "sailor": "MIT",
    "vidur": "MIT",
    "SimuMax": "Apache-2.0",
    "vTrain": "MIT",
    "nnscaler": "MIT",
    "stas00": "CC-BY-SA-4.0 (figures only)",
    "mag-": "figures only",
    "aws-samples": "MIT-0",
    "coreweave": "figures only",
    "NVIDIA/nvbandwidth": "Apache-2.0",
    "DeepSpeed": "Apache-2.0",
    "github.com": "public posts, figures only",
}
BURST_SOURCES: Final = ("aiconfigurator", "vidur", "stas00", "mag-", "ROCm/aiter")
"""Sources that time short bursts on a cool device, rather than kernels inside a running training step."""
BEST_SHAPE_SOURCES: Final = ("stas00", "mag-")
"""Sources that searched for the shape that runs best."""
EAGER_SOURCES: Final = ("NeuSight", "sailor")
"""Sources whose memory-bound passes run as an eager framework runs them, several kernels for one pass."""
COPYING_SOURCES: Final = ("sailor", "nnscaler")
"""Sources whose gathers, scatters and exchanges include the framework's copies of their parts."""
HOST_BOUND: Final = {"sailor": 200e-6}
"""Sources whose times hold the host's launch, and the seconds above which that no longer shows."""
STAGED: Final = {"L40S-48GB": 2, "RTX-3090-24GB": 2}
"""Machines without peer access between sockets, and the ranks beyond which their collectives show it."""
STACK: Final = re.compile(r"systems/data/\w+/\w+/(?P<stack>\w+)/(?P<version>[\w.]+)/")

Rows = Mapping[str, list[Mapping[str, str]]]


def main(folder: Path, target: Path = HERE) -> None:
    """Write one compressed file per system and an index, beside this module unless told otherwise."""
    tables, index = tables_of(folder), {}
    for system in sorted([*SYSTEMS, HOSTS]):
        document = profile_document(tables, system)
        packed = packed_profile(document)
        (target / f"{system}.json.gz").write_bytes(packed)
        index[system] = index_entry(document)
        sys.stdout.write(f"{system}: {len(document['kernels'])} kernels, {len(packed)} B\n")
    (target / INDEX).write_text(_index_text(index), encoding="utf-8")


def tables_of(folder: Path) -> Mapping[str, Rows]:
    """Return the rows of each file of a folder, by device."""
    return {name: _by_device(folder / name) for name in FILES}


def packed_profile(document: Mapping[str, Any]) -> bytes:
    """Return a profile document as the package ships it; equal figures give equal bytes."""
    rows = read_rows(document)
    assert not rows.refused, rows.refused[:3]
    tables = {key: getattr(rows, key) for key in ("kernels", "collectives", "transfers", "sources")}
    columns = json.dumps(columns_from_rows(document, tables=tables), separators=(",", ":"))
    return gzip.compress(columns.encode(), compresslevel=9, mtime=0)


def index_entry(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what can be known of a profile without opening it: its device, and rows of each kind."""
    products: Counter[str] = Counter()
    for row in document["kernels"]:
        if row["operator"] in {"matrix_product", "attention"} and row["phase"] == "forward":
            products[f"{row['operator']} {row['dtype']}"] += 1
    operations = Counter(row["operation"] for row in document["collectives"])
    return {"device": document["device"], "rows": dict(sorted((products + operations).items()))}


def profile_document(tables: Mapping[str, Rows], system: str) -> dict[str, Any]:
    """Return the profile document of one system; ``tables`` holds the rows of each file by device."""
    measured = SYSTEMS.get(system)
    published_as = HOSTS if measured is None else measured.published_as
    kernels, collectives, transfers = (
        list(convert(tables[name].get(published_as, ()))) for name, convert in FILES.items()
    )
    device = HOSTS if measured is None else measured.device
    rows = [*kernels, *collectives, *transfers]
    return {
        "format": FORMAT,
        "name": f"{system}/published",
        "device": device,
        "software": _software(rows),
        "facts": _source_facts({row["source"] for row in rows})
        | _link_facts(device, {row["intra_link"] for row in collectives}),
        "kernels": kernels,
        "collectives": collectives,
        "transfers": transfers,
    }


def _by_device(file: Path) -> Rows:
    rows: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        for row in csv.DictReader(lines):
            name = row.get("device") or row["device_or_host"]
            rows[HOSTS if name.startswith(HOST_PREFIX) else name].append(row)
    return rows


def _source_facts(sources: set[str]) -> dict[str, Any]:
    used = sorted(sources)
    return {
        "licences": {source: _licence(source) for source in used},
        "burst_sources": [source for source in used if source.startswith(BURST_SOURCES)],
        "best_shape_sources": [source for source in used if source.startswith(BEST_SHAPE_SOURCES)],
        "eager_sources": [source for source in used if source.startswith(EAGER_SOURCES)],
        "copying_sources": [source for source in used if source.startswith(COPYING_SOURCES)],
        "host_bound_seconds": {
            source: seconds
            for source in used
            for prefix, seconds in HOST_BOUND.items()
            if source.startswith(prefix)
        },
    }


def _link_facts(device: str, links: set[str | None]) -> dict[str, Any]:
    """Return the bandwidth of the link inside a node that collectives ran over, as they call it."""
    if device == HOSTS:
        return {}
    facts = device_facts(device)
    over_pcie = any((link or "").startswith("pcie") for link in links)
    own = None if over_pcie else facts["link"]["bandwidth_bytes_per_second"]
    link = own or facts.get("host_link_bytes_per_second")
    staged = {"staged_above_ranks": STAGED[device]} if device in STAGED else {}
    return ({"link_bandwidth_bytes_per_second": link} if link else {}) | staged


def _software(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the versions of the stacks and libraries that were timed, where the source says so."""
    versions: dict[str, set[str]] = defaultdict(set)
    for stack, version in _versions(rows):
        versions[stack].add(version)
    return {stack: sorted(versions[stack]) for stack in sorted(versions)}


def _versions(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for row in rows:
        stack = STACK.match(row["source_ref"] or "")
        if stack:
            yield stack["stack"], stack["version"]
        library = re.match(r"(NCCL|RCCL|oneCCL) (\d[\d.]*)", row.get("algorithm") or "")
        if library:
            yield library[1].lower(), library[2]


def _licence(source: str) -> str:
    return next(licence for prefix, licence in LICENCES.items() if source.startswith(prefix))


def _index_text(index: Mapping[str, Any]) -> str:
    lines = [f" {json.dumps(system)}: {json.dumps(entry)}" for system, entry in index.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
