import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from planner.workload.operators import Collective, Phase
from profiler.backend import CpuBackend
from profiler.measuring import Bench, Order, describe, failure_from, measure_all, run
from profiler.processes import Alone, Failure, PeerFailed, Place
from profiler.profile_file import Header, ProfileFile
from profiler.shapes import CollectiveShape, KernelShape, Shapes
from profiler.timing import Call, Rules, Timing

Value = TypeVar("Value")

QUICK = Rules(seconds_limit=0.01, sample_seconds=1e-4)


@dataclass(frozen=True, kw_only=True)
class ScriptedStopwatch:
    """Runs each call and gives it a millisecond."""

    def seconds(self, call: Call, *, times: int) -> float:
        call()
        return 1e-3 * times


@dataclass(frozen=True, kw_only=True)
class SmallBackend:
    """A processor with little memory that takes fp8 for what torch then cannot make."""

    free_bytes: float
    kind: str = "cpu"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    stopwatch: ScriptedStopwatch = field(default_factory=ScriptedStopwatch)
    collective_library: str = "gloo"
    intra_link: str | None = None
    default_dtype: str = "fp32"
    cache_bytes: int = 2**10

    def device_name(self) -> str:
        return "small"

    def memory_bytes(self) -> float:
        return 2**20

    def available_bytes(self) -> float:
        return self.free_bytes

    def use_precision(self, name: str) -> torch.dtype | None:
        return {"fp32": torch.float32, "fp8": torch.float8_e4m3fn}.get(name)

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
    size: int = 2
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
    return ProfileFile(path=path, header=Header(name="p", device="small", software={}, facts={}, run="now"))


def lone_bench(free_bytes: float = 2**20) -> Bench:
    return Bench(backend=SmallBackend(free_bytes=free_bytes), place=Place(), groups={1: Alone()})


def skipped_reasons(profile: ProfileFile) -> list[str]:
    return [row["reason"] for row in json.loads(profile.path.read_text())["facts"]["skipped"]]


@pytest.mark.parametrize(
    ("hopeless", "reason"),
    [
        (product(size=1024), "out_of_memory"),
        (product(dtype="fp8"), "failed"),
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

    assert len(profile.kernels) == 2


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
        bench = Bench(backend=backend, place=place, groups={2: ranks})
        measure_all(shapes, bench, profile=profile if rank == 0 else None, rules=QUICK, seconds_limit=None)

    in_threads(work)

    assert [row["shape"]["m"] for row in profile.kernels] == [8]
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
            product(),
            Failure(reason="time_limit", detail="the time was up"),
            "skipped, time_limit: the time was up",
        ),
    ],
)
def test_outcomes_are_described(
    wanted: KernelShape | CollectiveShape, outcome: Timing | Failure, text: str
) -> None:
    assert describe(wanted, outcome) == text
