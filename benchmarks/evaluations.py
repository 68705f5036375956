"""CPU milliseconds of evaluating a plan that is given: priced, replayed, its memory and its reasons told."""

import time

from planner.cluster_presets import cluster_from_preset
from planner.job import Constraints, Job, SolverLimits
from planner.planning import PlanRequest, evaluate_plan
from planner.profile import builtin_profile
from planner.strategy import ShortPlan
from planner.workload.presets import preset_workload

CLUSTER = "a100-sxm-80gb"
PLANS = (
    ("gpt-3-175b", 64, 64, ShortPlan(tensor_parallel=8, pipeline_parallel=8)),
    ("megatron-1t", 512, 512, ShortPlan(tensor_parallel=8, pipeline_parallel=64)),
)
REPEATS = 5


def main() -> None:
    """Evaluate each plan several times and print the first time and the median of the others."""
    print(f"{'plan':46} {'status':14} {'step s':>9} {'first ms':>9} {'later ms':>9}")
    for model, devices, batch, plan in PLANS:
        request = PlanRequest(
            workload=preset_workload(model),
            cluster=cluster_from_preset(CLUSTER, devices),
            job=Job(global_batch_size=batch, sequence_length=2048),
            constraints=Constraints(),
            solver=SolverLimits(),
            profiles=(builtin_profile(f"{CLUSTER}/published"),),
        )
        taken = []
        for _ in range(REPEATS + 1):
            started = time.process_time()
            result = evaluate_plan(request, plan)
            taken.append(1e3 * (time.process_time() - started))
        step = f"{result.prediction.step_time_seconds:.3f}" if result.prediction else "-"
        name = f"{model}: {plan.pipeline_parallel} stages, {batch} micro-batches"
        later = sorted(taken[1:])[REPEATS // 2]
        print(f"{name:46} {result.status:14} {step:>9} {taken[0]:9.1f} {later:9.1f}")


if __name__ == "__main__":
    main()
