"""Every legal plan of a model on some ranks, with what is predicted for it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from api.schemas.plan import PlanDocument
from benchmarks.closed_loop.models import Model
from planner.cluster import Cluster
from planner.job import Constraints, SolverLimits
from planner.measured_machine import cluster_of_machine
from planner.plan import Prediction
from planner.planning import PlanRequest, evaluate_plan, plan_training
from planner.profile import Profile
from planner.strategy import Recompute, RecomputeMode, Schedule, ScheduleName, ShortPlan, TrainingPlan
from planner.workload.chain import layers_document

MEMORY_FRACTION = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """A plan that can be run, and its prediction."""

    model: Model
    plan: TrainingPlan
    prediction: Prediction

    def order(self) -> dict[str, Any]:
        """Return what a trial is asked to run."""
        return {
            "layers": layers_document(self.model.workload)["layers"],
            "plan": PlanDocument.from_plan(self.plan).model_dump(mode="json"),
            "job": {
                "sequence_length": self.model.sequence_length,
                "precision": "fp32",
                "parameter_dtype": "fp32",
                "optimizer": "adamw",
            },
        }

    @property
    def kind(self) -> str:
        """The axes that ranks are spread over."""
        mesh = self.plan.mesh
        axes = (
            (mesh.data_parallel, "data"),
            (mesh.tensor_parallel, "tensor"),
            (mesh.pipeline_parallel, "pipeline"),
        )
        return " and ".join(name for degree, name in axes if degree > 1) or "none"

    @property
    def words(self) -> str:
        """The plan in a line."""
        mesh, batch, sharding = self.plan.mesh, self.plan.batch, self.plan.sharding
        layers = self.plan.stages[0].chunks[0].layers
        modes = {entry.recompute.mode.value for entry in layers if entry.kind == "decoder"}
        said = [
            f"DP {mesh.data_parallel}" if mesh.data_parallel > 1 else "",
            f"ZeRO {sharding.zero_stage.value}" if mesh.data_parallel > 1 else "",
            f"TP {mesh.tensor_parallel}" if mesh.tensor_parallel > 1 else "",
            "SP" if mesh.sequence_parallel else "",
            f"PP {mesh.pipeline_parallel} {self.plan.schedule.name.value}"
            if mesh.pipeline_parallel > 1
            else "",
            f"{batch.num_micro_batches} x {batch.micro_batch_size}",
            "" if modes <= {"none"} else f"recompute {' and '.join(sorted(modes))}",
        ]
        return ", ".join(filter(None, said))


def machine_of(profile: Profile, *, ranks: int) -> Cluster:
    """Return the machine that was profiled, as a cluster of its ranks."""
    return cluster_of_machine(profile, num_devices=ranks, name="here")


def request_for(model: Model, profile: Profile, *, ranks: int) -> PlanRequest:
    """Return the request to plan a model on the machine that was profiled."""
    return PlanRequest(
        workload=model.workload,
        cluster=machine_of(profile, ranks=ranks),
        job=model.job(),
        constraints=Constraints(memory_fraction=MEMORY_FRACTION),
        solver=SolverLimits(),
        profiles=(profile,),
    )


def legal_plans(request: PlanRequest, model: Model) -> list[Predicted]:
    """Return the plans of a request that break no rule, with their predictions."""
    found = []
    for short in short_plans(model, ranks=request.cluster.num_devices):
        result = evaluate_plan(request, short)
        if result.plan is not None and result.prediction is not None and not result.violations:
            found.append(Predicted(model=model, plan=result.plan, prediction=result.prediction))
    return found


def planned(request: PlanRequest, model: Model) -> Predicted:
    """Return the plan that the planner chooses."""
    result = plan_training(request)
    assert result.plan is not None
    assert result.prediction is not None
    return Predicted(model=model, plan=result.plan, prediction=result.prediction)


def short_plans(model: Model, *, ranks: int) -> Iterator[ShortPlan]:
    """Yield plans of all kinds that a trial runs, legal or not."""
    for pipeline, tensor in product(_divisors(ranks), repeat=2):
        if ranks % (pipeline * tensor):
            continue
        data = ranks // (pipeline * tensor)
        schedules = _schedules() if pipeline > 1 else (None,)
        stages = (0, 1, 2, 3) if data > 1 else (None,)
        for samples in _divisors(max(model.global_batch_size // data, 1)):
            for schedule, stage, sequence, mode in product(
                schedules, stages, (False, True) if tensor > 1 else (False,), RecomputeMode
            ):
                yield ShortPlan(
                    tensor_parallel=tensor,
                    pipeline_parallel=pipeline,
                    data_parallel=data,
                    micro_batch_size=samples,
                    zero_stage=stage,
                    sequence_parallel=sequence,
                    schedule=schedule,
                    recompute=Recompute(mode=mode),
                )


def _schedules() -> Sequence[Schedule]:
    return (
        Schedule(name=ScheduleName.GPIPE),
        Schedule(name=ScheduleName.ONE_FORWARD_ONE_BACKWARD),
        Schedule(name=ScheduleName.INTERLEAVED, virtual_stages=2),
    )


def _divisors(number: int) -> list[int]:
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]
