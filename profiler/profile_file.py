"""The profile document, written again with each result, so that a killed run leaves all it had."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiler.shapes import CollectiveShape, KernelShape
from profiler.timing import Timing

FORMAT = "meshplan-profile/1"
SOURCE = "meshplan profiler"

BYTES_PER_ELEMENT = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What a profile says of itself and of the machine, known before anything is measured."""

    name: str
    device: str
    software: Mapping[str, str | None]
    facts: Mapping[str, Any]
    run: str
    """When and how it was measured: the reference that each row gives as its source."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileFile:
    """One profile document and the file it is kept in.

    The file is replaced whole and at once: who reads it at any moment finds a well-formed profile.
    ``facts`` says in ``complete`` whether the run came to its end, and in ``skipped`` what could not
    be measured and why.
    """

    path: Path
    header: Header
    kernels: list[dict[str, Any]] = field(default_factory=list)
    collectives: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)

    def add_kernel(self, wanted: KernelShape, timing: Timing) -> None:
        """Keep the time of a kernel."""
        self.kernels.append({**_kernel_fields(wanted), **self._result_fields(timing)})
        self.write()

    def add_collective(
        self, wanted: CollectiveShape, timing: Timing, *, ranks_per_node: int, links: Mapping[str, str | None]
    ) -> None:
        """Keep the time of a collective; ``links`` are the fields that say what ran it over what."""
        row = {**_collective_fields(wanted), "ranks_per_node": ranks_per_node, **links}
        self.collectives.append({**row, **self._result_fields(timing)})
        self.write()

    def add_skipped(self, wanted: KernelShape | CollectiveShape, *, reason: str, detail: str) -> None:
        """Keep that something could not be measured, and why."""
        fields = _kernel_fields(wanted) if isinstance(wanted, KernelShape) else _collective_fields(wanted)
        self.skipped.append({**fields, "reason": reason, "detail": detail})
        self.write()

    def write(self, *, complete: bool = False) -> None:
        """Replace the file by the document as it stands."""
        beside = self.path.with_name(f"{self.path.name}.writing")
        with beside.open("w") as file:
            json.dump(self.document(complete=complete), file, indent=1)
        beside.replace(self.path)

    def document(self, *, complete: bool) -> dict[str, Any]:
        """Return the profile document."""
        return {
            "format": FORMAT,
            "name": self.header.name,
            "device": self.header.device,
            "software": dict(self.header.software),
            "facts": {
                **self.header.facts,
                "best_measured": best_measured(self.kernels),
                "complete": complete,
                "skipped": self.skipped,
            },
            "kernels": self.kernels,
            "collectives": self.collectives,
            "transfers": [],
        }

    def _result_fields(self, timing: Timing) -> dict[str, Any]:
        return {
            "seconds": timing.median_seconds,
            "spread_seconds": timing.spread_seconds,
            "source": SOURCE,
            "source_ref": self.header.run,
        }


def best_measured(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the best rate of a matrix product by precision, and the best bandwidth of an add.

    An add reads two operands and writes one; None and nothing where neither was measured.
    """
    flops: dict[str, float] = {}
    bandwidths = [0.0]
    for row in kernels:
        shape, seconds, dtype = row["shape"], row["seconds"], row["dtype"]
        if row["operator"] == "matrix_product":
            rate = 2 * shape["m"] * shape["n"] * shape["k"] / seconds
            flops[dtype] = max(flops.get(dtype, 0.0), rate)
        elif row["operator"] == "add":
            bandwidths.append(3 * shape["elems"] * BYTES_PER_ELEMENT[dtype] / seconds)
    return {"flops_per_second": flops, "memory_bandwidth_bytes_per_second": max(bandwidths) or None}


def _kernel_fields(wanted: KernelShape) -> dict[str, Any]:
    names = {"operator": wanted.operator, "dtype": wanted.dtype, "phase": wanted.phase.value}
    return {**names, "shape": dict(wanted.shape)}


def _collective_fields(wanted: CollectiveShape) -> dict[str, Any]:
    sizes = {"world_size": wanted.world_size, "payload_bytes": wanted.payload_bytes}
    return {"operation": wanted.operation.value, **sizes}
