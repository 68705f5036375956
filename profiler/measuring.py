"""One run: everything that is wanted, one after the other, by all processes in step."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from planner.units import Seconds, format_count, format_seconds
from profiler.backend import Backend, is_out_of_memory, open_backend
from profiler.facts import header_for, identity_of, met_machine
from profiler.journal import SUFFIX, TIME_IS_UP, open_journal
from profiler.kernels import kernel_call, kernel_flops
from profiler.ladder import default_shapes
from profiler.links import bus_bytes, collective_call, collective_start, group_shape
from profiler.operands import InvalidShape, Unsupported
from profiler.outcomes import Outcome, Overlapped
from profiler.overlap import measure_overlap
from profiler.processes import Alone, Failure, GroupShape, PeerFailed, Place, Ranks, join, part
from profiler.profile_file import Header, ProfileFile
from profiler.program import program_facts, threads_per_core
from profiler.shapes import CollectiveShape, KernelShape, OverlapShape, Shapes, TransferShape, Wanted, key_of
from profiler.sustained import load_shape, sustained_rate
from profiler.timing import Exchange, HostStopwatch, Rules, Stopwatch, Timing, measure
from profiler.transfers import prepared_transfer, runs_alone

PROGRAM = "program"
"""The fact that says what the host takes for torch's work around kernels."""
PROGRAM_SECONDS: Seconds = 5.0
PROGRAM_SHARE = 0.1
"""How long that is measured, and of the time for all, what it may take."""
REPEATED_FRACTION = 0.5
"""Of a measurement's share of the time, what its repeats may take; the rest makes operands and warms up."""
DRIVE_BYTES = 2**30
"""What is written to a drive and read back: more than a drive's own cache takes in at once."""


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
    load_seconds: Seconds = 0.0
    """How long to load the device for its sustained rate; 0: not at all."""
    drive_file: Path | None = None
    afresh: bool = False
    """Whether to forget what earlier runs left in the journal."""
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What one process measures with: its device, and the groups of processes by their shape."""

    backend: Backend
    place: Place
    groups: dict[GroupShape, Ranks]
    drive_file: Path | None = None
    shares_cores: bool = False
    """Whether several processes run on some core."""

    def everyone(self) -> Ranks:
        """Return all processes, which run a kernel at once: they share cores and memory in training too."""
        return self.groups[GroupShape(size=self.place.world_size)]

    def time(self, wanted: Wanted, *, rules: Rules) -> Outcome | None:
        """Return how long something takes, or why that could not be measured; None to who takes no part.

        It is the same on every process that takes part.
        """
        ranks = self._ranks(wanted)
        if isinstance(ranks, Failure):
            return ranks
        if not ranks.has_this_process:
            return None
        try:
            return self._outcome(wanted, ranks, rules)
        except PeerFailed as error:
            return error.failure
        except (RuntimeError, ValueError, MemoryError, OSError) as error:
            failure = failure_from(error)
            ranks.tell(failure)
            return failure
        finally:
            self.backend.release()

    def _ranks(self, wanted: Wanted) -> Ranks | Failure:
        match wanted:
            case KernelShape():
                return self.everyone()
            case TransferShape():
                return self._first_alone() if runs_alone(wanted) else self.everyone()
            case CollectiveShape():
                shape = group_shape(wanted, self.place)
            case OverlapShape():
                shape = group_shape(wanted.collective, self.place)
        return shape if isinstance(shape, Failure) else self.groups[shape]

    def _first_alone(self) -> Ranks:
        return Alone(has_this_process=self.place.rank == 0)

    def _outcome(self, wanted: Wanted, ranks: Ranks, rules: Rules) -> Outcome:
        stopwatch = self.backend.stopwatch
        match wanted:
            case KernelShape():
                call = kernel_call(wanted, self.backend)
                return measure(
                    call, stopwatch=self._stopwatch_of_kernels, rules=rules, exchange=ranks.exchange
                )
            case CollectiveShape():
                call = collective_call(wanted, ranks, self.backend)
                return measure(call, stopwatch=stopwatch, rules=rules, exchange=_slowest_of(ranks))
            case OverlapShape():
                return measure_overlap(
                    collective_start(wanted.collective, ranks, self.backend),
                    kernel_call(wanted.kernel, self.backend),
                    stopwatch=stopwatch,
                    rules=rules,
                    exchange=ranks.exchange,
                    slowest=_slowest_of(ranks),
                )
            case TransferShape():
                with prepared_transfer(wanted, self.backend, drive_file=self.drive_file) as prepared:
                    return measure(
                        prepared.call,
                        stopwatch=prepared.stopwatch,
                        rules=rules,
                        exchange=ranks.exchange,
                    )

    @property
    def _stopwatch_of_kernels(self) -> Stopwatch:
        """The clock of kernels: where processes share a core, of what each has of it.

        By the clock on the wall a short kernel would mostly take as long as alone, and a long one twice.
        """
        return HostStopwatch(now=time.process_time) if self.shares_cores else self.backend.stopwatch


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
        order.kind,
        dtype=backend.default_dtype,
        place=place,
        other_precisions=backend.other_precisions,
        drive_bytes=DRIVE_BYTES if order.drive_file else None,
    )
    wanted = (group_shape(collective, place) for collective in shapes.all_collectives())
    groups = join(
        place,
        meeting=meeting,
        library=backend.collective_library,
        shapes={shape for shape in wanted if isinstance(shape, GroupShape)},
    )
    try:
        bench = Bench(backend=backend, place=place, groups=groups, drive_file=order.drive_file)
        sharing = max(bench.everyone().exchange(threads_per_core(bench.everyone())))
        bench = replace(bench, shares_cores=order.kind == "cpu" and sharing > 1.0)
        machine = met_machine(place, bench.everyone())
        header = header_for(backend, place, machine, name=order.name, rules=order.rules)
        profile = _opened_profile(order, header, bench)
        seconds_limit = order.seconds_limit
        if order.load_seconds:
            _measure_load(order.load_seconds, bench, profile)
            seconds_limit = None if seconds_limit is None else max(0.0, seconds_limit - order.load_seconds)
        if order.shapes is None:
            _measure_program(bench, profile, seconds_limit=seconds_limit)
        measure_all(shapes, bench, profile=profile, rules=order.rules, seconds_limit=seconds_limit)
    finally:
        part()


def _opened_profile(order: Order, header: Header, bench: Bench) -> ProfileFile | None:
    """Return the profile at the first process; every process raises what that one met."""
    with _failing_together(bench.everyone()):
        if bench.place.rank:
            return None
        path = order.output.with_name(order.output.name + SUFFIX)
        if order.afresh:
            path.unlink(missing_ok=True)
        journal = open_journal(path, run=header.run, identity=identity_of(header))
        return ProfileFile(path=order.output, header=header, journal=journal)


@contextmanager
def _failing_together(ranks: Ranks) -> Iterator[None]:
    """Meet the others at the end; where one of them failed, so do all."""
    try:
        yield
    except (ValueError, OSError) as error:
        ranks.tell(failure_from(error))
        raise
    ranks.exchange(None)


def _measure_load(seconds: Seconds, bench: Bench, profile: ProfileFile | None) -> None:
    """Load every device and keep the rates; a run that goes on has them already."""
    known = (
        profile is not None and profile.journal.facts.get("sustained", {}).get("run") == profile.journal.run
    )
    if bench.everyone().exchange(known)[0]:
        return
    wanted = load_shape(bench.backend.kind, dtype=bench.backend.default_dtype)
    rates = sustained_rate(wanted, bench.backend, bench.everyone(), seconds=seconds)
    bench.backend.release()
    if profile:
        of_ranks = [asdict(rate) for rate in rates]
        profile.journal.add_facts(
            {"sustained": {"run": profile.journal.run, "kernel": str(wanted), "ranks": of_ranks}}
        )
        slowest = min(rates, key=lambda rate: rate.sustained_flops_per_second)
        _say(
            f"under load for {slowest.seconds:.0f} s, the slowest: "
            f"{format_count(slowest.burst_flops_per_second)}FLOP/s, in the end "
            f"{format_count(slowest.sustained_flops_per_second)}FLOP/s"
        )


def _measure_program(bench: Bench, profile: ProfileFile | None, *, seconds_limit: Seconds | None) -> None:
    """Keep what the host takes for torch's work around kernels; a run that goes on has it already."""
    known = profile is not None and profile.journal.facts.get(PROGRAM, {}).get("run") == profile.journal.run
    if bench.everyone().exchange(known)[0]:
        return
    limit = PROGRAM_SECONDS if seconds_limit is None else min(PROGRAM_SECONDS, PROGRAM_SHARE * seconds_limit)
    facts = _program_or_why_not(bench, seconds_limit=limit)
    bench.backend.release()
    if profile:
        profile.journal.add_facts({PROGRAM: {"run": profile.journal.run, **facts}})
        for row in facts["rows"]:
            _say(f"torch around kernels, {row['program']} {row['phase']}: {format_seconds(row['seconds'])}")
        if "skipped" in facts:
            _say(f"torch around kernels: skipped, {facts['skipped']}")


def _program_or_why_not(bench: Bench, *, seconds_limit: Seconds) -> dict[str, Any]:
    """Return what `program_facts` does, or no rows and the reason: a profile is worth having without."""
    try:
        return program_facts(bench.backend, bench.everyone(), seconds_limit=seconds_limit)
    except PeerFailed as error:
        return {"rows": [], "skipped": str(error)}
    except (RuntimeError, ValueError, MemoryError) as error:
        failure = failure_from(error)
        bench.everyone().tell(failure)
        return {"rows": [], "skipped": failure.detail}


def measure_all(
    shapes: Shapes, bench: Bench, *, profile: ProfileFile | None, rules: Rules, seconds_limit: Seconds | None
) -> None:
    """Measure everything wanted and keep each result; what the time does not allow is skipped.

    A run that goes on leaves out what it has; one that refines begins with what is known least.
    """
    try:
        _measure_in_order(shapes, bench, profile=profile, rules=rules, seconds_limit=seconds_limit)
    except BaseException:
        if profile:
            # A job whose time is over gets a signal: what it had by then stands in the profile too.
            profile.write()
        raise
    if profile:
        profile.end()
        for line in slow_ranks(profile.ranks()):
            _say(line)


def _measure_in_order(
    shapes: Shapes, bench: Bench, *, profile: ProfileFile | None, rules: Rules, seconds_limit: Seconds | None
) -> None:
    if profile:
        profile.write()
    wanted_in_order = bench.everyone().exchange(_in_order(shapes, profile))[0]
    started = time.monotonic()
    for done, wanted in enumerate(wanted_in_order):
        # The first process's clock decides for all of them.
        spent = bench.everyone().exchange(time.monotonic() - started)[0]
        share = None if seconds_limit is None else (seconds_limit - spent) / (len(wanted_in_order) - done)
        outcome = _time_within(share, wanted, bench, rules=rules)
        if profile and outcome is not None:
            profile.add(wanted, outcome)
            _say(f"[{done + 1}/{len(wanted_in_order)}] {wanted}: {describe(wanted, outcome)}")


def slow_ranks(ranks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each process that was slower than the others."""
    for rank in ranks:
        if rank["is_slow"]:
            place = f" (device {rank['device']} of {rank['node']})" if "node" in rank else ""
            times = f"{rank['relative_time']:.2f} times the middle one's time"
            yield f"rank {rank['rank']}{place} is slow: {times}"


def _in_order(shapes: Shapes, profile: ProfileFile | None) -> Sequence[Wanted]:
    """Return what is left to measure: as wanted where nothing is known, else the least known first."""
    if profile is None:
        return ()
    journal = profile.journal
    left = [wanted for wanted in shapes.interleaved() if key_of(wanted) not in journal.done]
    return sorted(left, key=lambda wanted: -journal.known_half_width(wanted))


def _time_within(share: Seconds | None, wanted: Wanted, bench: Bench, *, rules: Rules) -> Outcome | None:
    """Time something within its share of the seconds left; None: within the rules alone."""
    if share is None:
        return bench.time(wanted, rules=rules)
    if share <= 0:
        return Failure(reason=TIME_IS_UP, detail="the time was up")
    limit = min(rules.seconds_limit, share * REPEATED_FRACTION)
    return bench.time(wanted, rules=replace(rules, seconds_limit=limit))


def describe(wanted: Wanted, outcome: Outcome) -> str:
    """Return an outcome for people: median, spread, and the rate where one is meant."""
    if isinstance(outcome, Failure):
        return f"skipped, {outcome.reason}: {outcome.detail}"
    if isinstance(outcome, Overlapped):
        return (
            f"the collective takes {outcome.collective_slowdown:.2f} times as long, "
            f"{outcome.kernels} kernels {outcome.kernel_slowdown:.2f} times"
        )
    return " ".join([_described(outcome), *_rates(wanted, outcome)])


def _described(timing: Timing) -> str:
    median, spread = timing.median_seconds, timing.spread_seconds
    return format_seconds(median) + ("" if spread is None else f" ± {spread / median:.1%}")


def _rates(wanted: Wanted, timing: Timing) -> Iterator[str]:
    amount: float | None = None
    unit = "B/s"
    match wanted:
        case KernelShape():
            amount, unit = kernel_flops(wanted), "FLOP/s"
        case CollectiveShape():
            amount, unit = bus_bytes(wanted), "B/s on the bus"
        case TransferShape():
            amount = wanted.payload_bytes
    if amount:
        yield f"{format_count(amount / timing.median_seconds)}{unit}"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
