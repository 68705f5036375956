"""What binds, what was given up, what would help; each sentence cites the field that backs it."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Final

from planner.framework import Framework, StateFormats
from planner.job import Job, Trainable
from planner.parameters import COMPILATIONS
from planner.plan import Alternative, Certificate, Explanation, Prediction, StageMemory, TimeBreakdown
from planner.strategy import Mesh, TrainingPlan
from planner.units import Seconds, format_bytes, format_count, format_seconds

CAUSE_WORDS = {
    "compute": "computing",
    "recompute": "recomputing activations",
    "tensor_parallel": "visible tensor-parallel communication",
    "context_parallel": "visible context-parallel communication",
    "expert_parallel": "visible expert-parallel communication",
    "pipeline": "sending activations between stages",
    "data_parallel": "visible gradient reductions and parameter gathers",
    "offload": "visible copies to the host",
    "bubble": "waiting for other stages",
    "optimizer": "the optimizer",
    "overhead": "host overhead",
}


NO_SWITCHES: Final[Mapping[str, str]] = {}
STATE_WORDS = {"optimizer": "optimizer states", "parameters": "parameters", "gradients": "gradients"}


def host_warnings(prediction: Prediction, *, memory_fraction: float) -> tuple[str, ...]:
    """Return a warning for hosts that are too small or nearly full, and for what their updates rest on."""
    warnings = []
    for host in prediction.host:
        if not host.memory_bytes:
            continue
        share = f"{format_bytes(host.memory_bytes)} of {format_bytes(host.capacity_bytes)}"
        if not host.fits:
            warnings.append(f"each node of {host.node_group} would keep {share} on its host: it does not fit")
        elif host.memory_bytes > memory_fraction * host.capacity_bytes:
            over = f"over the safe line of {memory_fraction:.0%}"
            warnings.append(f"each node of {host.node_group} keeps {share} on its host: {over}")
        warnings.append(
            f"updates on the hosts of {host.node_group} are timed with all cores at work: give each rank "
            "its share of them (OMP_NUM_THREADS)"
        )
    return tuple(warnings)


def memory_warnings(prediction: Prediction, *, memory_fraction: float) -> tuple[str, ...]:
    """Return a warning for every stage that fits and may not: over the safe line, or within its interval."""
    return tuple(
        f"stage {stage.stage} needs {_share_of(stage)}{risk}, so it may run out of memory"
        for stage in prediction.memory
        if stage.fits and (risk := _risk_of(stage, memory_fraction=memory_fraction))
    )


def _risk_of(stage: StageMemory, *, memory_fraction: float) -> str:
    """Return what speaks against a stage that fits; nothing where nothing does."""
    if stage.peak_bytes > memory_fraction * stage.capacity_bytes:
        return f": over the safe line of {memory_fraction:.0%}"
    high = stage.interval_bytes[1]
    return f", and up to {format_bytes(high)} within its interval" if high > stage.capacity_bytes else ""


def training_warnings(job: Job, framework: Framework) -> tuple[str, ...]:
    """Return a warning for everything that a job trains otherwise than its framework does."""
    formats = StateFormats.of(job)
    ignored = [
        f"{framework.name} does not let a job choose its {word}: priced as it does"
        for word in framework.ignored_formats(formats)
    ]
    guessed = (
        ("what compiled layers save of time is a stated guess",)
        if job.compiled and framework.compiled_as in COMPILATIONS
        else ()
    )
    return (*ignored, *guessed, *_adapter_warnings(job.trainable, framework))


def _adapter_warnings(trainable: Trainable, framework: Framework) -> Iterator[str]:
    if not trainable.has_adapters:
        return
    if not framework.adapters:
        yield f"{framework.name} is not known to train low-rank adapters: priced as if it did"
    narrow = trainable.rests_narrow
    if narrow and not framework.quantized_bases:
        yield (
            f"{framework.name} is not known to train over weights at rest in {trainable.base_format}: "
            "priced as if it did"
        )
    elif narrow and not framework.shards_quantized:
        yield f"{framework.name} does not shard quantized weights: every replica holds all of them"


def provenance_warnings(prediction: Prediction) -> tuple[str, ...]:
    """Return a warning when much of the prediction rests on datasheets."""
    share = prediction.provenance.datasheet
    if share <= 0.25:  # noqa: PLR2004 - a quarter: below it the interval says enough
        return ()
    warning = (
        f"{share:.0%} of the predicted time comes from datasheet figures: no measurement of this "
        "device covers it, so the interval is wide"
    )
    return (warning,)


def explain(
    plan: TrainingPlan,
    prediction: Prediction,
    *,
    certificate: Certificate | None = None,
    alternatives: tuple[Alternative, ...] = (),
    memory_fraction: float = 1.0,
    switches: Mapping[str, str] = NO_SWITCHES,
) -> tuple[Explanation, ...]:
    """Return the sentences about a plan, the most telling first.

    ``switches`` are what the framework has to be told, by the word of a sharding that takes it.
    """
    return (
        *_proof(certificate),
        *_time(prediction),
        *_memory(prediction, memory_fraction=memory_fraction),
        *_hosts(plan, prediction),
        *_sent(plan, switches),
        *_traded(plan, prediction, alternatives),
        *_certainty(prediction),
    )


def _proof(certificate: Certificate | None) -> Iterator[Explanation]:
    if certificate is None:
        return
    space = format_count(certificate.plans_in_space)
    counts = certificate.meshes
    if certificate.proven_optimal:
        text = (
            f"No plan of the {space} in the space is predicted faster: {counts.solved} layouts were solved "
            f"exactly, {counts.pruned} of {counts.total} ruled out by a lower bound."
        )
    else:
        text = (
            f"The best plan found is at most {certificate.relative_gap:.1%} from the best of the {space} in "
            "the space: the search stopped before the bounds met."
        )
    yield Explanation(text=text, pointer="/certificate")


def _time(prediction: Prediction) -> Iterator[Explanation]:
    parts = _ranked_parts(prediction.breakdown_seconds)
    whole = prediction.step_time_seconds
    lead, *rest = parts
    costs = [part for part in rest if part[1] >= 0.01 * whole]
    listed = ", ".join(f"{seconds / whole:.0%} {CAUSE_WORDS[name]}" for name, seconds in costs[:4])
    text = f"Of {format_seconds(whole)} per step, {lead[1] / whole:.0%} is {CAUSE_WORDS[lead[0]]}"
    yield Explanation(
        text=f"{text}; {listed}." if listed else f"{text}.", pointer="/prediction/breakdown_seconds"
    )


def _ranked_parts(breakdown: TimeBreakdown) -> list[tuple[str, float]]:
    parts = [(entry.name, float(getattr(breakdown, entry.name))) for entry in fields(breakdown)]
    return sorted(parts, key=lambda part: -part[1])


def _memory(prediction: Prediction, *, memory_fraction: float) -> Iterator[Explanation]:
    fullest = max(prediction.memory, key=lambda stage: stage.peak_bytes / stage.capacity_bytes)
    line = memory_fraction * fullest.capacity_bytes
    room = line - fullest.peak_bytes
    left = f"{format_bytes(room)} below" if room >= 0 else f"{format_bytes(-room)} above"
    pointer = f"/prediction/memory/{prediction.memory.index(fullest)}"
    text = f"The fullest device is on stage {fullest.stage}: {_share_of(fullest)}, {left} the safe line"
    yield Explanation(text=f"{text}.", pointer=pointer)


def _hosts(plan: TrainingPlan, prediction: Prediction) -> Iterator[Explanation]:
    """Say what rests on the hosts, what it takes there, and what its copies and updates show."""
    offloads = [layers.offload for stage in plan.stages for chunk in stage.chunks for layers in chunk.layers]
    states = [
        f"{getattr(offloads[0], state).cpu:.0%} of the {words}"
        for state, words in STATE_WORDS.items()
        if getattr(offloads[0], state).cpu
    ]
    if any(offload.activations.cpu for offload in offloads):
        states.append("activations of some layers")
    fullest = max(prediction.host, key=lambda host: host.memory_bytes)
    if not states:
        return
    visible = prediction.breakdown_seconds.offload
    text = (
        f"By offload the hosts keep {' and '.join(states)}: {format_bytes(fullest.memory_bytes)} of "
        f"{format_bytes(fullest.capacity_bytes)} per node; copies and updates there add "
        f"{format_seconds(visible)} to the step."
    )
    yield Explanation(text=text, pointer=f"/prediction/host/{prediction.host.index(fullest)}")


def _sent(plan: TrainingPlan, switches: Mapping[str, str]) -> Iterator[Explanation]:
    """Say what replicas send and keep that is not the framework's default, and how that is told it."""
    for word, told in switches.items():
        pointer = f"/plan/sharding/{word}"
        dtype = getattr(plan.sharding, word)
        text = {
            "gather_dtype": f"Parameters are gathered as {dtype}",
            "reduce_dtype": f"Gradients are reduced as {dtype}",
        }.get(word, "Parameters stay gathered from forward to backward")
        yield Explanation(text=f"{text}, not as the framework would: {told}.", pointer=pointer)


def _traded(
    plan: TrainingPlan, prediction: Prediction, alternatives: tuple[Alternative, ...]
) -> Iterator[Explanation]:
    for number, other in enumerate(alternatives):
        change = change_words(other.prediction.step_time_seconds, prediction.step_time_seconds)
        text = f"{other.why}, {_degrees(other.plan.mesh)} would take {change}."
        yield Explanation(text=text, pointer=f"/alternatives/{number}")
    bubble = prediction.breakdown_seconds.bubble
    if plan.mesh.pipeline_parallel > 1 and bubble > 0:
        text = (
            f"{plan.batch.num_micro_batches} micro-batches fill {plan.mesh.pipeline_parallel} stages of "
            f"{plan.schedule.virtual_stages} chunks: {bubble / prediction.step_time_seconds:.1%} of the step "
            "is bubble."
        )
        yield Explanation(text=text, pointer="/prediction/breakdown_seconds/bubble")


def _degrees(mesh: Mesh) -> str:
    """Return the degrees of a mesh that people compare."""
    context = f", context {mesh.context_parallel}" if mesh.context_parallel > 1 else ""
    experts = f", expert {mesh.expert_parallel}" if mesh.expert_parallel > 1 else ""
    return (
        f"tensor {mesh.tensor_parallel}{context}, pipeline {mesh.pipeline_parallel}, data "
        f"{mesh.data_parallel}{experts}"
    )


def change_words(seconds: Seconds, before_seconds: Seconds) -> str:
    """Return how much longer or shorter one step is than another."""
    change = seconds / before_seconds - 1
    return f"{abs(change):.1%} {'longer' if change >= 0 else 'less'}"


def _certainty(prediction: Prediction) -> Iterator[Explanation]:
    low, high = prediction.step_time_interval_seconds
    shares = prediction.provenance
    text = (
        f"{shares.measured:.0%} of the time comes from exact measurements, {shares.interpolated:.0%} from "
        f"interpolated ones, {shares.datasheet:.0%} from datasheets and stated rules: with 80 % "
        f"confidence the step takes {format_seconds(low)} to {format_seconds(high)}."
    )
    yield Explanation(text=text, pointer="/prediction/provenance")


def _share_of(stage: StageMemory) -> str:
    return f"{format_bytes(stage.peak_bytes)} of {format_bytes(stage.capacity_bytes)}"
