from dataclasses import dataclass, field, replace

from profiler.backend import CpuBackend
from profiler.processes import Alone
from profiler.sustained import load_shape, sustained_rate
from profiler.timing import AtOnce, Call, Start


@dataclass
class Cooling:
    """A stopwatch for a device that halves its rate after two seconds."""

    now_seconds: float = 0.0
    calls: list[int] = field(default_factory=list)

    def now(self) -> float:
        return self.now_seconds

    def seconds(self, call: Call, *, times: int) -> float:
        del call
        self.calls.append(times)
        took = times * (0.1 if self.now_seconds < 2 else 0.2)
        self.now_seconds += took
        return took

    def together(self, start: Start, call: Call, *, times: int) -> AtOnce:
        raise NotImplementedError


def test_rate_under_load_is_the_one_that_lasts() -> None:
    clock = Cooling()
    backend = replace(CpuBackend(processes_per_node=1), stopwatch=clock)
    shape = replace(load_shape("cpu", dtype="fp32"), shape={"m": 10, "n": 10, "k": 10})

    (rate,) = sustained_rate(shape, backend, Alone(), seconds=20.0, now=clock.now)

    assert rate.burst_flops_per_second == 2000 / 0.1
    assert rate.sustained_flops_per_second == 2000 / 0.2
    assert rate.seconds >= 20.0
    assert clock.calls[2:] == [5] * (len(clock.calls) - 2)
