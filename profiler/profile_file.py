"""The profile document: what the journal's results come to, written as they come."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.units import Seconds
from profiler.journal import Journal
from profiler.outcomes import Outcome, Overlapped, Result
from profiler.processes import Failure
from profiler.shapes import CollectiveShape, KernelShape, OverlapShape, TransferShape, Wanted, document_of
from profiler.slow_ranks import compared_ranks
from profiler.timing import Timing

FORMAT = "meshplan-profile/1"
SOURCE = "meshplan profiler"

BYTES_PER_ELEMENT = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
SECONDS_BETWEEN_WRITES: Seconds = 1.0
"""A document of many rows takes longer to write than a kernel to measure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What a profile says of itself and of the machine, known before anything is measured."""

    name: str
    device: str
    software: Mapping[str, str | None]
    facts: Mapping[str, Any]
    run: str
    """When and how it was measured: the reference that each row gives as its source."""
    processes_per_node: int = 1
    links: Mapping[str, str | None] = field(default_factory=dict)
    """What ran collectives, in which precision and over what; ``inter_link`` is that between nodes."""


@dataclass(kw_only=True, slots=True)
class ProfileFile:
    """One profile document and the file it is kept in, beside its journal.

    The file is replaced whole and at once: who reads it at any moment finds a well-formed profile.
    ``facts`` says in ``complete`` whether the run came to its end, and in ``skipped`` what could not
    be measured and why.
    """

    path: Path
    header: Header
    journal: Journal
    written: Seconds = -SECONDS_BETWEEN_WRITES

    def add(self, wanted: Wanted, outcome: Outcome) -> None:
        """Keep what came of measuring something."""
        self.journal.add(wanted, outcome)
        if time.monotonic() - self.written >= SECONDS_BETWEEN_WRITES:
            self.write()

    def end(self) -> None:
        """Say that all was done."""
        self.journal.end()
        self.write(complete=True)

    def write(self, *, complete: bool = False) -> None:
        """Replace the file by the document as it stands."""
        beside = self.path.with_name(f"{self.path.name}.writing")
        with beside.open("w") as file:
            json.dump(self.document(complete=complete), file, indent=1)
        beside.replace(self.path)
        self.written = time.monotonic()

    def document(self, *, complete: bool) -> dict[str, Any]:
        """Return the profile document."""
        results = list(self.journal.results.values())
        kernels = [self._row(result) for result in results if _is_timed(result, KernelShape)]
        collectives = [self._collective_row(result) for result in _collectives(results, alone=True)]
        return {
            "format": FORMAT,
            "name": self.header.name,
            "device": self.header.device,
            "software": dict(self.header.software),
            "facts": {
                **self.header.facts,
                **self.journal.facts,
                "runs": self.journal.runs,
                "best_measured": best_measured(kernels),
                "groups_at_once": [self._collective_row(one) for one in _collectives(results, alone=False)],
                "overlaps": [_overlap_row(one) for one in results if isinstance(one.outcome, Overlapped)],
                "ranks": self.ranks(),
                "complete": complete,
                "skipped": [_skipped_row(one) for one in results if isinstance(one.outcome, Failure)],
            },
            "kernels": kernels,
            "collectives": collectives,
            "transfers": [self._transfer_row(one) for one in results if _is_timed(one, TransferShape)],
        }

    def ranks(self) -> list[dict[str, Any]]:
        """Return each process beside the others; see `compared_ranks`."""
        places = self.header.facts.get("places", ())
        return compared_ranks(self.journal.results.values(), places=places)

    def _row(self, result: Result) -> dict[str, Any]:
        timing = _timing(result)
        return {
            **document_of(result.wanted),
            "seconds": timing.median_seconds,
            "spread_seconds": timing.spread_seconds,
            **self._source(result),
        }

    def _collective_row(self, result: Result) -> dict[str, Any]:
        wanted = result.wanted
        assert isinstance(wanted, CollectiveShape)
        per_node = wanted.ranks_per_node or min(wanted.world_size, self.header.processes_per_node)
        inter_link = self.header.links.get("inter_link") if per_node < wanted.world_size else None
        return {
            **self._row(result),
            "ranks_per_node": per_node,
            **self.header.links,
            "inter_link": inter_link,
        }

    def _transfer_row(self, result: Result) -> dict[str, Any]:
        rate = document_of(result.wanted)["payload_bytes"] / _timing(result).median_seconds
        return {**document_of(result.wanted), "bytes_per_second": rate, **self._source(result)}

    def _source(self, result: Result) -> dict[str, str]:
        runs = f", runs: {result.runs}" if result.runs > 1 else ""
        return {"source": SOURCE, "source_ref": f"{result.run}{runs}"}


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


def _is_timed(result: Result, kind: type[KernelShape | CollectiveShape | TransferShape]) -> bool:
    return isinstance(result.wanted, kind) and isinstance(result.outcome, Timing)


def _timing(result: Result) -> Timing:
    assert isinstance(result.outcome, Timing)
    return result.outcome


def _collectives(results: Iterable[Result], *, alone: bool) -> list[Result]:
    return [
        result
        for result in results
        if isinstance(result.wanted, CollectiveShape)
        and isinstance(result.outcome, Timing)
        and result.wanted.is_alone is alone
    ]


def _overlap_row(result: Result) -> dict[str, Any]:
    wanted, outcome = result.wanted, result.outcome
    assert isinstance(wanted, OverlapShape)
    assert isinstance(outcome, Overlapped)
    return {
        **document_of(wanted),
        "kernels": outcome.kernels,
        "collective_seconds_alone": outcome.collective_alone.median_seconds,
        "collective_seconds_together": outcome.collective_together.median_seconds,
        "kernels_seconds_alone": outcome.kernels_alone.median_seconds,
        "kernels_seconds_together": outcome.kernels_together.median_seconds,
    }


def _skipped_row(result: Result) -> dict[str, Any]:
    assert isinstance(result.outcome, Failure)
    failure = result.outcome
    return {**document_of(result.wanted), "reason": failure.reason, "detail": failure.detail}
