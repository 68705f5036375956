import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from planner.workload.operators import Collective, Phase
from profiler.backend import CpuBackend
from profiler.journal import OtherMachine, open_journal
from profiler.measuring import Bench, Order, describe, failure_from, measure_all, run, slow_ranks
from profiler.outcomes import Outcome, Overlapped
from profiler.processes import Alone, Failure, GroupShape, PeerFailed, Place
from profiler.profile_file import Header, ProfileFile
from profiler.shapes import CollectiveShape, KernelShape, OverlapShape, Shapes, TransferShape, Wanted
from profiler.timing import AtOnce, Call, Rules, Start, Timing

Value = TypeVar("Value")

QUICK = Rules(seconds_limit=0.01, sample_seconds=1e-4)


@dataclass(frozen=True, kw_only=True)
class ScriptedStopwatch:
    """Runs each call and gives it a millisecond."""

    def seconds(self, call: Call, *, times: int) -> float:
        call()
        return 1e-3 * times

    def together(self, start: Start, call: Call, *, times: int) -> AtOnce:
        start().wait()
        return AtOnce(collective_seconds=2e-3, calls_seconds=self.seconds(call, times=times))


@dataclass(frozen=True, kw_only=True)
class SmallBackend:
    """A processor with little memory that takes tf32 for what torch then cannot make."""

    free_bytes: float
    kind: str = "cpu"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    stopwatch: ScriptedStopwatch = field(default_factory=ScriptedStopwatch)
    collective_library: str = "gloo"
    intra_link: str | None = None
    default_dtype: str = "fp32"
    other_precisions: tuple[str, ...] = ()
    cache_bytes: int = 2**10

    def device_name(self) -> str:
        return "small"

    def memory_bytes(self) -> float:
        return 2**20

    def available_bytes(self) -> float:
        return self.free_bytes

    def use_precision(self, name: str) -> torch.dtype | None:
        return {"fp32": torch.float32, "tf32": torch.int32}.get(name)

    def software(self) -> dict[str, str | None]:
        return {}

    def release(self) -> None:
        pass


@dataclass
class ThreadedRanks:
    """Two processes as threads of this one: what a thread gives, both get."""

    rank: int
    barrier: threading.Barrier
    values: list[Any]
    members: tuple[int, ...] = (0, 1)
    has_this_process: bool = True
    collective_group: None = None

    def exchange(self, value: Value) -> list[Value]:
        given = self._gather(value)
        for each in given:
            if isinstance(each, Failure):
                raise PeerFailed(each)
        return given

    def tell(self, failure: Failure) -> None:
        self._gather(failure)

    def _gather(self, value: object) -> list[Any]:
        self.values[self.rank] = value
        self.barrier.wait(timeout=30)
        given = list(self.values)
        self.barrier.wait(timeout=30)
        return given


def product(*, size: int = 4, dtype: str = "fp32", phase: Phase = Phase.FORWARD) -> KernelShape:
    return KernelShape(
        operator="matrix_product", dtype=dtype, phase=phase, shape={"m": size, "n": size, "k": size}
    )


def all_reduce(world_size: int) -> CollectiveShape:
    return CollectiveShape(operation=Collective.ALL_REDUCE, world_size=world_size, payload_bytes=1024)


def profile_at(path: Path) -> ProfileFile:
    header = Header(name="p", device="small", software={}, facts={}, run="now")
    journal = open_journal(path.with_suffix(".journal"), run="now", identity={})
    return ProfileFile(path=path, header=header, journal=journal)


def document_at(profile: ProfileFile) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(profile.path.read_text())
    return document


def lone_bench(free_bytes: float = 2**20) -> Bench:
    return Bench(
        backend=SmallBackend(free_bytes=free_bytes), place=Place(), groups={GroupShape(size=1): Alone()}
    )


def skipped_reasons(profile: ProfileFile) -> list[str]:
    return [row["reason"] for row in json.loads(profile.path.read_text())["facts"]["skipped"]]


@pytest.mark.parametrize(
    ("hopeless", "reason"),
    [
        (product(size=1024), "out_of_memory"),
        (product(dtype="tf32"), "failed"),
        (product(dtype="fp4"), "unsupported"),
        (product(size=0), "invalid_shape"),
        (product(phase=Phase.OPTIMIZER), "unsupported"),
        (all_reduce(2), "too_few_processes"),
    ],
)
def test_what_cannot_be_measured_is_recorded_and_the_rest_is_measured(
    tmp_path: Path, hopeless: KernelShape | CollectiveShape, reason: str
) -> None:
    profile = profile_at(tmp_path / "profile.json")
    is_kernel = isinstance(hopeless, KernelShape)
    shapes = Shapes(
        kernels=(product(), *([hopeless] if isinstance(hopeless, KernelShape) else []), product(size=8)),
        collectives=() if is_kernel else (hopeless,),  # type: ignore[arg-type]  # the other of the two
    )

    measure_all(shapes, lone_bench(), profile=profile, rules=QUICK, seconds_limit=None)

    document = json.loads(profile.path.read_text())
    assert [row["shape"]["m"] for row in document["kernels"]] == [4, 8]
    assert skipped_reasons(profile) == [reason]
    assert document["facts"]["complete"] is True


def test_time_that_is_up_skips_the_rest(tmp_path: Path) -> None:
    profile = profile_at(tmp_path / "profile.json")
    shapes = Shapes(kernels=(product(), product(size=8)))

    measure_all(shapes, lone_bench(), profile=profile, rules=QUICK, seconds_limit=1e-9)

    assert json.loads(profile.path.read_text())["kernels"] == []
    assert skipped_reasons(profile) == ["time_limit", "time_limit"]


def test_time_that_suffices_measures_all(tmp_path: Path) -> None:
    profile = profile_at(tmp_path / "profile.json")

    measure_all(
        Shapes(kernels=(product(), product(size=8))),
        lone_bench(),
        profile=profile,
        rules=QUICK,
        seconds_limit=60.0,
    )

    assert len(document_at(profile)["kernels"]) == 2


def in_threads(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)


def test_memory_of_one_process_running_out_skips_the_shape_on_both(tmp_path: Path) -> None:
    barrier, values = threading.Barrier(2), [None, None]
    profile = profile_at(tmp_path / "profile.json")
    shapes = Shapes(kernels=(product(size=128), product(size=8)))

    def work(rank: int) -> None:
        ranks = ThreadedRanks(rank=rank, barrier=barrier, values=values)
        place = Place(rank=rank, world_size=2, local_rank=rank, processes_per_node=2)
        backend = SmallBackend(free_bytes=[2**30, 2**16][rank])
        bench = Bench(backend=backend, place=place, groups={GroupShape(size=2): ranks})
        measure_all(shapes, bench, profile=profile if rank == 0 else None, rules=QUICK, seconds_limit=None)

    in_threads(work)

    assert [row["shape"]["m"] for row in document_at(profile)["kernels"]] == [8]
    assert skipped_reasons(profile) == ["out_of_memory"]


def test_run_alone_writes_the_machine_and_its_kernels(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    output = tmp_path / "profile.json"
    order = Order(
        output=output, kind="cpu", name="mine", shapes=Shapes(kernels=(product(size=16),)), rules=QUICK
    )
    try:
        run(order, Place(), "")
    finally:
        torch.set_num_threads(threads)

    document = json.loads(output.read_text())
    assert document["name"] == "mine"
    assert document["device"] == CpuBackend(processes_per_node=1).device_name()
    assert document["facts"]["device"]["name"] == document["device"]
    assert document["facts"]["device"]["memory_bytes"] > 0
    assert document["facts"]["threads_per_process"] == document["facts"]["cores"]
    assert document["software"]["torch"] == torch.__version__
    assert len(document["kernels"]) == 1
    assert document["facts"]["places"] == [{"node": document["facts"]["nodes"][0]["name"], "device": 0}]


def test_run_that_was_cut_short_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    both = Shapes(kernels=(product(), product(size=8)))
    first = profile_at(path)
    first.add(product(), Timing.of([[1.0]]))

    measure_all(both, lone_bench(), profile=profile_at(path), rules=QUICK, seconds_limit=None)

    seconds = {row["shape"]["m"]: row["seconds"] for row in document_at(first)["kernels"]}
    assert seconds[4] == 1.0
    assert seconds[8] == pytest.approx(1e-3)


def test_run_after_one_that_ended_refines_it(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    shapes = Shapes(kernels=(product(),))
    for _ in range(2):
        measure_all(shapes, lone_bench(), profile=profile_at(path), rules=QUICK, seconds_limit=None)

    (row,) = document_at(profile_at(path))["kernels"]
    assert row["source_ref"] == "now, runs: 2"


def test_what_is_known_least_is_measured_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.json"
    first = profile_at(path)
    first.add(product(), Timing.of([[1.0] * 50]))
    first.add(product(size=8), Timing.of([[1.0, 2.0] * 25]))
    first.end()
    shapes = Shapes(kernels=(product(), product(size=8), product(size=16)))

    measure_all(shapes, lone_bench(), profile=profile_at(path), rules=QUICK, seconds_limit=None)

    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("m=")[2].partition(" ")[0] for line in lines] == ["16", "8", "4"]


@dataclass(frozen=True, kw_only=True)
class SignalledStopwatch(ScriptedStopwatch):
    """Is interrupted, as by the signal of a scheduler, once it is asked about a third kernel."""

    calls: list[Call] = field(default_factory=list)

    def seconds(self, call: Call, *, times: int) -> float:
        if call not in self.calls:
            self.calls.append(call)
        if len(self.calls) > 2:
            raise SystemExit(143)
        return 1e-3 * times


def test_run_that_gets_a_signal_leaves_all_that_it_had(tmp_path: Path) -> None:
    profile = profile_at(tmp_path / "profile.json")
    backend = replace(SmallBackend(free_bytes=2**20), stopwatch=SignalledStopwatch())
    bench = Bench(backend=backend, place=Place(), groups={GroupShape(size=1): Alone()})
    shapes = Shapes(kernels=tuple(product(size=size) for size in (4, 8, 16)))

    with pytest.raises(SystemExit):
        measure_all(shapes, bench, profile=profile, rules=QUICK, seconds_limit=None)

    document = document_at(profile)
    assert [row["shape"]["m"] for row in document["kernels"]] == [4, 8]
    assert document["facts"]["complete"] is False


def test_slow_processes_are_named() -> None:
    ranks = [
        {"rank": 0, "node": "a", "device": 0, "relative_time": 1.0, "is_slow": False},
        {"rank": 1, "node": "a", "device": 1, "relative_time": 1.234, "is_slow": True},
    ]

    assert list(slow_ranks(ranks)) == ["rank 1 (device 1 of a) is slow: 1.23 times the middle one's time"]


def test_transfers_and_their_rates_are_kept(tmp_path: Path) -> None:
    profile = profile_at(tmp_path / "profile.json")
    shapes = Shapes(transfers=(TransferShape(operation="host_copy", payload_bytes=2**12),))

    measure_all(shapes, lone_bench(), profile=profile, rules=QUICK, seconds_limit=None)

    (row,) = document_at(profile)["transfers"]
    assert (row["operation"], row["payload_bytes"]) == ("host_copy", 2**12)
    assert row["bytes_per_second"] > 0


def test_profile_is_written_where_torch_cannot_run_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> dict[str, Any]:
        raise RuntimeError("no such schedule\nand more of it")

    monkeypatch.setattr("profiler.measuring.program_facts", refuse)
    monkeypatch.setattr("profiler.measuring.default_shapes", lambda *_, **__: Shapes(kernels=(product(),)))
    path = tmp_path / "profile.json"
    run(Order(output=path, kind="cpu"), Place(), "")

    document = json.loads(path.read_text())
    assert len(document["kernels"]) == 1
    assert document["facts"]["program"]["skipped"] == "no such schedule"
    assert document["facts"]["program"]["rows"] == []


def test_load_is_measured_once_in_a_run(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    order = Order(
        output=tmp_path / "profile.json",
        kind="cpu",
        shapes=Shapes(kernels=(product(),)),
        load_seconds=0.01,
        rules=QUICK,
    )
    try:
        run(order, Place(), "")
    finally:
        torch.set_num_threads(threads)

    (rate,) = json.loads(order.output.read_text())["facts"]["sustained"]["ranks"]
    assert 0 < rate["sustained_flops_per_second"] <= 2 * rate["burst_flops_per_second"]


def test_journal_of_other_software_ends_the_run(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    open_journal(output.with_name("profile.json.journal"), run="then", identity={"torch": "1.0"})
    order = Order(output=output, kind="cpu", shapes=Shapes(kernels=(product(),)), rules=QUICK)

    with pytest.raises(OtherMachine, match="was measured with"):
        run(order, Place(), "")


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (RuntimeError("first line\nsecond line"), Failure(reason="failed", detail="first line")),
        (RuntimeError(), Failure(reason="failed", detail="RuntimeError")),
        (MemoryError("needs 2 B"), Failure(reason="out_of_memory", detail="needs 2 B")),
    ],
)
def test_failures_say_their_kind_and_their_first_line(error: Exception, failure: Failure) -> None:
    assert failure_from(error) == failure


@pytest.mark.parametrize(
    ("wanted", "outcome", "text"),
    [
        (product(size=100), Timing(samples=(0.001,)), "1 ms 2 GFLOP/s"),
        (product(size=100), Timing(samples=(0.001,) * 3), "1 ms ± 0.0% 2 GFLOP/s"),
        (all_reduce(2), Timing(samples=(0.001,)), "1 ms 1.02 MB/s on the bus"),
        (
            KernelShape(operator="add", dtype="fp32", phase=Phase.FORWARD, shape={"elems": 1}),
            Timing(samples=(1.0,)),
            "1 s",
        ),
        (
            TransferShape(operation="h2d", payload_bytes=10**9),
            Timing(samples=(0.5,)),
            "500 ms 2 GB/s",
        ),
        (
            OverlapShape(collective=all_reduce(2), kernel=product()),
            Overlapped(
                kernels=3,
                collective_alone=Timing(samples=(1.0,)),
                kernels_alone=Timing(samples=(1.0,)),
                collective_together=Timing(samples=(1.5,)),
                kernels_together=Timing(samples=(1.25,)),
            ),
            "the collective takes 1.50 times as long, 3 kernels 1.25 times",
        ),
        (
            product(),
            Failure(reason="time_limit", detail="the time was up"),
            "skipped, time_limit: the time was up",
        ),
    ],
)
def test_outcomes_are_described(wanted: Wanted, outcome: Outcome, text: str) -> None:
    assert describe(wanted, outcome) == text
