"""CPU seconds of whole plan requests: bf16, AdamW, megatron-core, cluster presets and their measurements."""

import time

from planner.cluster_presets import cluster_from_preset
from planner.job import Constraints, Job, SolverLimits
from planner.planning import PlanRequest, plan_training
from planner.profile import builtin_profile
from planner.workload.presets import preset_workload

REQUESTS = (
    ("llama-3-8b", "h100-sxm", 8, 128, 8192, ()),
    ("llama-3-70b", "h100-sxm", 64, 1024, 8192, ()),
    ("gpt-3-175b", "a100-sxm-80gb", 1024, 1536, 2048, ()),
    ("megatron-1t", "a100-sxm-80gb", 3072, 3072, 2048, ()),
    ("llama-3-70b", "a100-sxm-40gb", 8, 8, 2048, ("offload",)),
)
LIMITS = SolverLimits(time_limit_seconds=300)


def main() -> None:
    """Plan each request twice and print the second time: kernels are loaded, caches of shapes warm."""
    print(f"{'request':42} {'status':10} {'step s':>9} {'CPU s':>7} {'layouts solved of all':>24}")
    for model, cluster, devices, batch, sequence, forbid in REQUESTS:
        request = PlanRequest(
            workload=preset_workload(model),
            cluster=cluster_from_preset(cluster, devices),
            job=Job(global_batch_size=batch, sequence_length=sequence),
            constraints=Constraints(forbid=forbid),
            solver=LIMITS,
            profiles=(builtin_profile(f"{cluster}/published"),),
        )
        plan_training(request)
        started = time.process_time()
        result = plan_training(request)
        taken = time.process_time() - started
        step = f"{result.prediction.step_time_seconds:.3f}" if result.prediction else "-"
        counts = result.certificate.meshes if result.certificate else None
        solved = f"{counts.solved} of {counts.total}" if counts else "-"
        name = f"{model} on {devices} x {cluster}"
        print(f"{name:42} {result.status:10} {step:>9} {taken:7.2f} {solved:>24}")


if __name__ == "__main__":
    main()
