"""One run: everything that is wanted, one after the other, by all processes in step."""

import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from planner.units import Seconds, format_count, format_seconds
from profiler.backend import Backend, is_out_of_memory, open_backend
from profiler.facts import header_for
from profiler.kernels import InvalidShape, Unsupported, kernel_call, kernel_flops
from profiler.ladder import default_shapes
from profiler.links import DTYPE, bus_bytes, collective_call
from profiler.processes import Failure, PeerFailed, Place, Ranks, join, part
from profiler.profile_file import ProfileFile
from profiler.shapes import CollectiveShape, KernelShape, Shapes
from profiler.timing import Call, Exchange, Rules, Timing, measure

Wanted = KernelShape | CollectiveShape

REPEATED_FRACTION = 0.5
"""Of a measurement's share of the time, what its repeats may take; the rest makes operands and warms up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What was asked for on the command line; every process has the same."""

    output: Path
    kind: str
    """The kind of device: cpu or cuda."""
    name: str | None = None
    shapes: Shapes | None = None
    """None: the default ladder of the device."""
    seconds_limit: Seconds | None = None
    """Of the whole run; None: until everything is measured."""
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What one process measures with: its device, and the groups of processes by size."""

    backend: Backend
    place: Place
    groups: dict[int, Ranks]

    def everyone(self) -> Ranks:
        """Return all processes, which run a kernel at once: they share cores and memory in training too."""
        return self.groups[self.place.world_size]

    def time(self, wanted: Wanted, *, rules: Rules) -> Timing | Failure:
        """Return how long something takes, or why that could not be measured: the same on every process."""
        if isinstance(wanted, CollectiveShape) and wanted.world_size > self.place.world_size:
            here = f"{wanted.world_size} processes are needed, {self.place.world_size} run"
            return Failure(reason="too_few_processes", detail=here)
        ranks = self._ranks(wanted)
        exchange = ranks.exchange if isinstance(wanted, KernelShape) else _slowest_of(ranks)
        try:
            call = self._call(wanted, ranks)
            return measure(call, stopwatch=self.backend.stopwatch, rules=rules, exchange=exchange)
        except PeerFailed as error:
            return error.failure
        except (RuntimeError, ValueError, MemoryError) as error:
            failure = failure_from(error)
            ranks.tell(failure)
            return failure
        finally:
            self.backend.release()

    def _ranks(self, wanted: Wanted) -> Ranks:
        return self.everyone() if isinstance(wanted, KernelShape) else self.groups[wanted.world_size]

    def _call(self, wanted: Wanted, ranks: Ranks) -> Call:
        if isinstance(wanted, KernelShape):
            return kernel_call(wanted, self.backend)
        return collective_call(wanted, ranks, self.backend)

    def is_member(self, wanted: Wanted) -> bool:
        """Return whether this process takes part; the others wait for the next measurement."""
        return isinstance(wanted, KernelShape) or self.place.rank < wanted.world_size


def _slowest_of(ranks: Ranks) -> Exchange:
    """Return an exchange that gives one figure for all: a collective ends when its last rank has it."""

    def exchange(own: list[Seconds]) -> list[list[Seconds]]:
        return [[max(at_once) for at_once in zip(*ranks.exchange(own), strict=True)]]

    return exchange


def failure_from(error: Exception) -> Failure:
    """Return why a measurement could not be made, with the first line of what was said."""
    detail = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, Unsupported):
        return Failure(reason="unsupported", detail=detail)
    if isinstance(error, InvalidShape):
        return Failure(reason="invalid_shape", detail=detail)
    return Failure(reason="out_of_memory" if is_out_of_memory(error) else "failed", detail=detail)


def run(order: Order, place: Place, meeting: str) -> None:
    """Measure what is ordered at this process's place; the first process writes the profile."""
    backend = open_backend(
        order.kind, local_rank=place.local_rank, processes_per_node=place.processes_per_node
    )
    shapes = order.shapes or default_shapes(
        order.kind, dtype=backend.default_dtype, world_size=place.world_size
    )
    sizes = {wanted.world_size for wanted in shapes.collectives}
    groups = join(place, meeting=meeting, library=backend.collective_library, sizes=sizes)
    try:
        header = header_for(backend, place, name=order.name, rules=order.rules)
        profile = ProfileFile(path=order.output, header=header) if place.rank == 0 else None
        bench = Bench(backend=backend, place=place, groups=groups)
        measure_all(shapes, bench, profile=profile, rules=order.rules, seconds_limit=order.seconds_limit)
    finally:
        part()


def measure_all(
    shapes: Shapes, bench: Bench, *, profile: ProfileFile | None, rules: Rules, seconds_limit: Seconds | None
) -> None:
    """Measure everything wanted and keep each result; what the time does not allow is skipped."""
    if profile:
        profile.write()
    started = time.monotonic()
    wanted_in_order = shapes.interleaved()
    for done, wanted in enumerate(wanted_in_order):
        # The first process's clock decides for all of them.
        spent = bench.everyone().exchange(time.monotonic() - started)[0]
        share = None if seconds_limit is None else (seconds_limit - spent) / (len(wanted_in_order) - done)
        if not bench.is_member(wanted):
            continue
        outcome = _time_within(share, wanted, bench, rules=rules)
        if profile:
            _keep(wanted, outcome, profile, bench)
            _say(f"[{done + 1}/{len(wanted_in_order)}] {wanted}: {describe(wanted, outcome)}")
    if profile:
        profile.write(complete=True)


def _time_within(share: Seconds | None, wanted: Wanted, bench: Bench, *, rules: Rules) -> Timing | Failure:
    """Time something within its share of the seconds left; None: within the rules alone."""
    if share is None:
        return bench.time(wanted, rules=rules)
    if share <= 0:
        return Failure(reason="time_limit", detail="the time was up")
    limit = min(rules.seconds_limit, share * REPEATED_FRACTION)
    return bench.time(wanted, rules=replace(rules, seconds_limit=limit))


def _keep(wanted: Wanted, outcome: Timing | Failure, profile: ProfileFile, bench: Bench) -> None:
    if isinstance(outcome, Failure):
        profile.add_skipped(wanted, reason=outcome.reason, detail=outcome.detail)
    elif isinstance(wanted, KernelShape):
        profile.add_kernel(wanted, outcome)
    else:
        ranks_per_node = min(wanted.world_size, bench.place.processes_per_node)
        links = {
            "dtype": DTYPE,
            "algorithm": bench.backend.collective_library,
            "intra_link": bench.backend.intra_link,
            # What joins nodes is not known here, only that something does.
            "inter_link": "network" if ranks_per_node < wanted.world_size else None,
        }
        profile.add_collective(wanted, outcome, ranks_per_node=ranks_per_node, links=links)


def describe(wanted: Wanted, outcome: Timing | Failure) -> str:
    """Return an outcome for people: median, spread, and the rate where one is meant."""
    if isinstance(outcome, Failure):
        return f"skipped, {outcome.reason}: {outcome.detail}"
    parts = [format_seconds(outcome.median_seconds)]
    if outcome.spread_seconds is not None:
        parts.append(f"± {outcome.spread_seconds / outcome.median_seconds:.1%}")
    flops = kernel_flops(wanted) if isinstance(wanted, KernelShape) else None
    if flops:
        parts.append(f"{format_count(flops / outcome.median_seconds)}FLOP/s")
    if isinstance(wanted, CollectiveShape):
        parts.append(f"{format_count(bus_bytes(wanted) / outcome.median_seconds)}B/s on the bus")
    return " ".join(parts)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
