"""CPU seconds and peak memory of plan requests: bf16, AdamW, megatron-core, presets, one process each."""

import resource
import subprocess
import sys
import time
from dataclasses import dataclass

from planner.cluster_presets import cluster_from_preset
from planner.job import Constraints, Job, SolverLimits
from planner.planning import PlanRequest, plan_training
from planner.profile import builtin_profile
from planner.workload.presets import preset_workload

KIBIBYTE = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One request; it is asked twice where it is ``warm``, and the second time counts."""

    model: str
    cluster: str
    devices: int
    batch: int
    sequence: int
    forbid: tuple[str, ...] = ()
    limit_seconds: float = 300.0
    warm: bool = True

    def request(self) -> PlanRequest:
        """Return what the planner is asked."""
        return PlanRequest(
            workload=preset_workload(self.model),
            cluster=cluster_from_preset(self.cluster, self.devices),
            job=Job(global_batch_size=self.batch, sequence_length=self.sequence),
            constraints=Constraints(forbid=self.forbid),
            solver=SolverLimits(time_limit_seconds=self.limit_seconds),
            profiles=(builtin_profile(f"{self.cluster}/published"),),
        )


REQUESTS = (
    Asked(model="llama-3-8b", cluster="h100-sxm", devices=8, batch=128, sequence=8192),
    Asked(model="llama-3-70b", cluster="h100-sxm", devices=64, batch=1024, sequence=8192),
    Asked(model="gpt-3-175b", cluster="a100-sxm-80gb", devices=1024, batch=1536, sequence=2048),
    Asked(model="megatron-1t", cluster="a100-sxm-80gb", devices=3072, batch=3072, sequence=2048),
    Asked(model="llama-3-405b", cluster="h100-sxm", devices=16384, batch=128, sequence=131072),
    Asked(model="megatron-1t", cluster="h100-sxm", devices=100_000, batch=12288, sequence=2048),
    Asked(
        model="llama-3-70b",
        cluster="a100-sxm-40gb",
        devices=8,
        batch=8,
        sequence=2048,
        forbid=("offload",),
    ),
    Asked(model="deepseek-v3", cluster="h100-sxm", devices=2048, batch=15360, sequence=4096, warm=False),
)


def line(asked: Asked) -> str:
    """Return the line of a request, solved in this process."""
    request = asked.request()
    if asked.warm:
        plan_training(request)
    started = time.process_time()
    result = plan_training(request)
    taken = time.process_time() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIBIBYTE
    step = f"{result.prediction.step_time_seconds:.3f}" if result.prediction else "-"
    counts = result.certificate.meshes if result.certificate else None
    gap = f"{result.certificate.relative_gap:.3f}" if result.certificate else "-"
    solved = f"{counts.solved} of {counts.total}" if counts else "-"
    name = f"{asked.model} on {asked.devices} x {asked.cluster}"
    return f"{name:42} {result.status:10} {step:>9} {gap:>6} {taken:7.2f} {peak_mb:8.0f} {solved:>24}"


def main() -> None:
    """Plan each request in a process of its own: kernels loaded and caches of shapes warm, but for one."""
    head = ("request", "status", "step s", "gap", "CPU s", "peak MB", "layouts solved of all")
    print("{:42} {:10} {:>9} {:>6} {:>7} {:>8} {:>24}".format(*head), flush=True)
    for number in range(len(REQUESTS)):
        subprocess.run(  # noqa: S603 - this module
            [sys.executable, "-m", "benchmarks.plans", str(number)], check=True
        )


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdecimal():
        print(line(REQUESTS[int(sys.argv[1])]), flush=True)
    else:
        main()
