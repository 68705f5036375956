"""How much work an evaluation is: a step is replayed pass by pass, so endless ones are refused."""

from typing import Final

from planner.cluster import Cluster
from planner.errors import InvalidRequest
from planner.job import Job
from planner.placement import largest_data_parallel
from planner.strategy import Mesh, ShortPlan, TrainingPlan

MAX_PASSES: Final = 4_000_000
"""Forward and backward passes of all chunks in one step: half a minute of replay, 2 GB of memory."""


def refuse_endless(plan: TrainingPlan | ShortPlan, *, job: Job, cluster: Cluster) -> None:
    """Raise InvalidRequest for a plan whose step has more passes than can be replayed."""
    chunks, micro_batches = _size(plan, job=job, cluster=cluster)
    passes = 2 * chunks * micro_batches
    if passes > MAX_PASSES:
        raise InvalidRequest(
            f"a step of {passes:,} passes is too long to be replayed; {MAX_PASSES:,} are not",
            pointer="/job/global_batch_size",
            nearest_legal=(max(job.global_batch_size * MAX_PASSES // passes, 1),),
        )


def num_passes(plan: TrainingPlan) -> int:
    """Return the forward and backward passes of all chunks in one step."""
    return 2 * plan.mesh.pipeline_parallel * plan.schedule.virtual_stages * plan.batch.num_micro_batches


def _size(plan: TrainingPlan | ShortPlan, *, job: Job, cluster: Cluster) -> tuple[int, int]:
    """Return the chunks and the micro-batches of a plan, in the short form by its plain arithmetic."""
    if isinstance(plan, TrainingPlan):
        return plan.mesh.pipeline_parallel * plan.schedule.virtual_stages, plan.batch.num_micro_batches
    degrees = Mesh(
        tensor_parallel=plan.tensor_parallel,
        context_parallel=plan.context_parallel,
        pipeline_parallel=plan.pipeline_parallel,
    )
    replicas = plan.data_parallel or largest_data_parallel(degrees, cluster)
    given = plan.extra.get("num_micro_batches")
    micro_batches = job.global_batch_size // (plan.micro_batch_size * replicas)
    chunks = plan.pipeline_parallel * (plan.virtual_stages or 1)
    return chunks, given if isinstance(given, int) else micro_batches
