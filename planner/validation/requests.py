"""A row as a question for the planner: what to evaluate, and which of its facts were assumed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.framework import FULL_RECOMPUTE, NO_RECOMPUTE, SELECTIVE_RECOMPUTE
from planner.job import Constraints, SolverLimits
from planner.planning import PlanRequest
from planner.relatives import published_profiles
from planner.strategy import Recompute, Schedule, ScheduleName, ShortPlan, ZeroStage
from planner.validation.machines import cluster_of
from planner.validation.models import workload_of
from planner.validation.rows import Reader, Row, UnusableRow
from planner.validation.software import Software, job_of, software_of
from planner.workload.body import body_of
from planner.workload.operators import Module

EXPERT_TENSOR: Final = re.compile(r"\bETP=(\d+)")
SCHEDULE: Final = re.compile(r"\bschedule=([\w-]+)")
SCHEDULES: Final[Mapping[str, ScheduleName | None]] = {
    "1f1b": None,
    "1f1b-interleaved": None,
    "interleaved": None,
    "gpipe": ScheduleName.GPIPE,
    "breadth-first": ScheduleName.BREADTH_FIRST,
    "loopedbfs": ScheduleName.BREADTH_FIRST,
    "zb-h1": ScheduleName.ZB_H1,
    "zbh1": ScheduleName.ZB_H1,
    "interleavedzerobubble": ScheduleName.ZB_H1,
    "zb-v": ScheduleName.ZB_V,
    "zbv": ScheduleName.ZB_V,
    "zbvzerobubble": ScheduleName.ZB_V,
    "dualpipe-v": ScheduleName.DUALPIPE_V,
    "dualpipev": ScheduleName.DUALPIPE_V,
}
"""Schedules as notes spell them; None for those that follow from the chunks per stage."""
END_LAYERS: Final = 2
"""Embedding and head, which frameworks count as a layer each where the split then comes out even."""


OFFLOADED: Final[Mapping[str, tuple[str, ...]]] = {
    "full": ("optimizer", "parameters"),
    "optimizer": ("optimizer",),
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "activations": ("activations",),
}
"""What runs keep on the host, as rows say it. DeepSpeed's gradients follow its optimizer."""
MODULES: Final[Mapping[str, Module]] = {
    "core_attn": Module.CORE_ATTENTION,
    "layernorm": Module.NORM,
    "mla_up_proj": Module.LATENT_PROJECTION,
    "mlp": Module.MLP,
    "moe": Module.MOE,
    "moe_act": Module.MOE_ACTIVATION,
    "shared_experts": Module.SHARED_EXPERTS,
}
"""Megatron-core's words for what --recompute-modules makes again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One row as an evaluation; ``assumed`` names the columns that it leaves unsaid."""

    row: Row
    request: PlanRequest
    plan: ShortPlan
    assumed: frozenset[str]


def question_of(row: Row) -> Question:
    """Return what a row asks; UnusableRow with the fact that it lacks, or that cannot be priced yet."""
    reader = Reader(row=row)
    workload = workload_of(reader)
    cluster = cluster_of(reader)
    software = software_of(reader)
    job = job_of(reader, software)
    request = PlanRequest(
        workload=workload,
        cluster=cluster,
        job=job,
        constraints=Constraints(),
        solver=SolverLimits(),
        profiles=published_profiles(cluster.node_groups[0].device, job.precision),
    )
    plan = plan_of(reader, software, request)
    return Question(row=row, request=request, plan=plan, assumed=frozenset(reader.assumed))


def plan_of(reader: Reader, software: Software, request: PlanRequest) -> ShortPlan:
    """Return the plan of a row, with the program's defaults for what it leaves unsaid."""
    tensor, pipeline = reader.required("tp"), reader.required("pp")
    context = reader.degree("cp")
    micro_batch = reader.required("mbs")
    model_parallel = tensor * pipeline * context
    data = reader.row.whole("dp") or request.cluster.num_devices // model_parallel
    if data * model_parallel != request.cluster.num_devices:
        raise UnusableRow("gpus is not tp x pp x cp x dp")
    passes = request.job.global_batch_size // (data * micro_batch)
    virtual_stages = _virtual_stages(reader, software, request, stages=pipeline, passes=passes)
    return ShortPlan(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_parallel=context,
        data_parallel=data,
        expert_parallel=reader.degree("ep"),
        virtual_stages=virtual_stages,
        micro_batch_size=micro_batch,
        zero_stage=_zero_stage(reader, software, replicas=data * context),
        sequence_parallel=tensor > 1
        and reader.flag("seq_parallel", default=software.default_sequence_parallel),
        recompute=_recompute(reader),
        schedule=_schedule(reader, virtual_stages=virtual_stages, stages=pipeline),
        layers_per_stage=_uneven_layers(reader, software, request, chunks=pipeline * virtual_stages),
        offload=_offload(reader.row),
        extra=_expert_tensor_parallel(reader),
    )


def _expert_tensor_parallel(reader: Reader) -> dict[str, int]:
    """Return how many ranks share an expert, which has no column, where the notes say so."""
    said = EXPERT_TENSOR.search(reader.row.text("notes"))
    return {"expert_tensor_parallel": int(said.group(1))} if said else {}


def _offload(row: Row) -> Mapping[str, float]:
    """Return what rests on the host, by words as ``optimizer+parameters``; states where it is ``full``."""
    text = row.text("offload").lower()
    if text in {"", "none"}:
        return {}
    words = [OFFLOADED.get(word.strip()) for word in text.split("+")]
    if not all(words):
        raise UnusableRow(f"offload {text} is not known")
    return {name: 1.0 for word in words for name in word or ()}


def _schedule(reader: Reader, *, virtual_stages: int, stages: int) -> Schedule | None:
    """Return the schedule that the notes name; None for the usual one of so many chunks per stage."""
    said = SCHEDULE.search(reader.row.text("notes"))
    if said is None or stages == 1:
        return None
    word = said.group(1).lower()
    if word not in SCHEDULES:
        raise UnusableRow(f"schedule {word} is not known")
    name = SCHEDULES[word]
    return None if name is None else Schedule(name=name, virtual_stages=virtual_stages)


def _zero_stage(reader: Reader, software: Software, *, replicas: int) -> int:
    """Return the ZeRO stage; the distributed optimizer is stage 1, and one replica has nothing to shard."""
    stage, distributed = reader.row.whole("zero_stage"), reader.row.flag("dist_opt")
    if stage is None and distributed is not None:
        stage = int(distributed)
    if stage is not None and stage > max(ZeroStage):
        raise UnusableRow("zero_stage is none of 0 to 3")
    if stage is None and replicas > 1:
        stage = reader.default("zero_stage", software.default_zero_stage)
    return stage if stage and replicas > 1 else 0


def _virtual_stages(
    reader: Reader, software: Software, request: PlanRequest, *, stages: int, passes: int
) -> int:
    """Return the chunks of a stage: one where there is nothing to interleave.

    Unsaid, it is one as well, but for recipes that interleave: they go down to one layer a chunk.
    """
    given = reader.row.whole("vpp")
    if stages == 1:
        return 1
    if given is not None:
        return max(given, 1)
    layers = body_of(request.workload).num_layers
    interleaves = software.interleaves and layers % stages == 0 and passes % stages == 0
    return reader.default("vpp", layers // stages if interleaves else 1)


def _recompute(reader: Reader) -> Recompute:
    text = reader.row.text("recompute").lower()
    if not text:
        return reader.default("recompute", NO_RECOMPUTE)
    if text == "none":
        return NO_RECOMPUTE
    if text.startswith("full") and "," not in text:
        return FULL_RECOMPUTE
    named = [MODULES.get(word) for word in text.removeprefix("selective:").replace("+", " ").split()]
    if text.startswith("selective:") and all(named):
        return replace(SELECTIVE_RECOMPUTE, modules=tuple(module.value for module in named if module))
    if text == "selective" or re.search(r"core[ _]att", text):
        return SELECTIVE_RECOMPUTE
    raise UnusableRow(f"recomputation {text} is not priced yet")


def _uneven_layers(
    reader: Reader, software: Software, request: PlanRequest, *, chunks: int
) -> tuple[int, ...] | None:
    """Return layers per chunk where they do not come out even and the framework asks for a split.

    Frameworks that are told to balance count embedding and head as a layer each; where even that
    does not come out, the longer chunks are put first.
    """
    layers = body_of(request.workload).num_layers
    if layers % chunks == 0:
        return None
    counted = layers + END_LAYERS
    if counted % chunks == 0 and counted > chunks:
        share = counted // chunks
        return reader.default("layers_per_stage", (share - 1, *[share] * (chunks - 2), share - 1))
    if software.traits.uneven_by_default:
        return None
    share, longer = divmod(layers, chunks)
    return reader.default("layers_per_stage", tuple(share + (chunk < longer) for chunk in range(chunks)))
