"""Which pipeline schedules a framework has, and how many micro-batches they run with."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from planner.framework import Framework
from planner.rules.rule import Outcome, Part, Proposal, Rule
from planner.setting import divisors, nearest_values
from planner.strategy import (
    Batch,
    Mesh,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    Violation,
)

ACCUMULATION: Final = ScheduleName.ONE_FORWARD_ONE_BACKWARD
"""What one stage alone does, whatever the schedules of pipelines are: accumulate gradients."""


def _schedules_words(framework: Framework) -> str | None:
    if not framework.pipeline_parallel:
        return None
    return f"a pipeline's schedule is {' or '.join(framework.schedules)}"


def _schedules(proposal: Proposal) -> Iterator[Violation]:
    name, framework = proposal.layout.schedule.name, proposal.framework
    is_alone = proposal.layout.mesh.pipeline_parallel <= 1 and name is ACCUMULATION
    if name not in framework.schedules and not is_alone:
        yield Violation(
            pointer="/plan/schedule",
            rule=f"{proposal.who} has no {name} schedule",
            nearest_legal=tuple(legal.value for legal in framework.schedules),
        )


def _is_pipeline(proposal: Proposal, *names: ScheduleName) -> bool:
    return proposal.layout.mesh.pipeline_parallel > 1 and proposal.layout.schedule.name in names


def _needs_multiple(proposal: Proposal, number: int, *, why: str) -> Violation:
    """Return that the micro-batches are no multiple of a number, with the nearest that would be."""
    batch, data = proposal.layout.batch, max(proposal.layout.mesh.data_parallel, 1)
    samples = proposal.setting.job.global_batch_size // data
    legal = [passes for passes in divisors(max(samples, 1)) if passes % number == 0]
    return Violation(
        pointer="/plan/num_micro_batches",
        rule=f"{why} needs a multiple of {number} micro-batches, not {batch.num_micro_batches}",
        nearest_legal=nearest_values(batch.num_micro_batches, legal),
    )


def _fewest_words(framework: Framework) -> str | None:
    spare = framework.limits.spare_stages
    if spare is None or not framework.pipeline_parallel:
        return None
    return f"1f1b has at least pipeline_parallel{f' - {spare}' if spare else ''} micro-batches"


def _fewest(proposal: Proposal) -> Iterator[Violation]:
    spare = proposal.framework.limits.spare_stages
    stages, passes = proposal.layout.mesh.pipeline_parallel, proposal.layout.batch.num_micro_batches
    if spare is None or not _is_pipeline(proposal, ScheduleName.ONE_FORWARD_ONE_BACKWARD):
        return
    least = stages - spare
    if passes < least:
        samples = max(proposal.setting.job.global_batch_size // proposal.layout.mesh.data_parallel, 1)
        yield Violation(
            pointer="/plan/num_micro_batches",
            rule=f"1f1b over {stages} stages needs at least {least} micro-batches in {proposal.who}, "
            f"not {passes}",
            nearest_legal=nearest_values(passes, [count for count in divisors(samples) if count >= least]),
        )


def _filled_words(framework: Framework) -> str | None:
    fills = framework.limits.micro_batches_fill_stages
    return "a pipeline's micro-batches are a multiple of pipeline_parallel" if fills else None


def _filled(proposal: Proposal) -> Iterator[Violation]:
    stages, passes = proposal.layout.mesh.pipeline_parallel, proposal.layout.batch.num_micro_batches
    if stages > 1 and passes % stages:
        yield _needs_multiple(proposal, stages, why=f"a pipeline of {stages} stages in {proposal.who}")


def _turns_words(framework: Framework) -> str | None:
    if ScheduleName.INTERLEAVED not in framework.schedules:
        return None
    return (
        "interleaved micro-batches are at least pipeline_parallel, "
        "and divided by interleave_group_size they leave none over or as many"
    )


def interleaving_fits(mesh: Mesh, batch: Batch, schedule: Schedule) -> bool:
    """Whether the micro-batches fill the groups in which chunks take turns."""
    stages, passes = mesh.pipeline_parallel, batch.num_micro_batches
    group = schedule.interleave_group_size or stages
    return passes >= stages and not 0 < passes % group < stages


@lru_cache(maxsize=1 << 14)
def least_group(*, stages: int, passes: int) -> int:
    """Return the smallest group of micro-batches in which chunks can take turns: one per stage, or more.

    There is none where micro-batches are fewer than stages.
    """
    sizes = (size for size in range(stages, passes + 1) if not 0 < passes % size < stages)
    return next(sizes, stages)


def _turns(proposal: Proposal) -> Iterator[Violation]:
    layout = proposal.layout
    stages, passes = layout.mesh.pipeline_parallel, layout.batch.num_micro_batches
    group = layout.schedule.interleave_group_size or stages
    if not _is_pipeline(proposal, ScheduleName.INTERLEAVED) or not stages <= group <= max(passes, stages):
        return
    if not interleaving_fits(layout.mesh, layout.batch, layout.schedule):
        yield Violation(
            pointer="/plan/virtual_stages",
            rule=f"interleaving {stages} stages needs the micro-batches ({passes}) to fill groups of {group}",
            nearest_legal=(1,),
        )


def _interleaved_words(framework: Framework) -> str | None:
    fills = framework.limits.interleaved_fill_stages
    return "interleaved micro-batches are a multiple of pipeline_parallel" if fills else None


def _interleaved(proposal: Proposal) -> Iterator[Violation]:
    stages, passes = proposal.layout.mesh.pipeline_parallel, proposal.layout.batch.num_micro_batches
    if _is_pipeline(proposal, ScheduleName.INTERLEAVED) and passes % stages:
        yield _needs_multiple(proposal, stages, why=f"interleaving {stages} stages in {proposal.who}")


def _rounds_words(framework: Framework) -> str | None:
    if not framework.limits.interleaved_fill_rounds or ScheduleName.INTERLEAVED not in framework.schedules:
        return None
    return "interleaved micro-batches are a multiple of micro-batches // pipeline_parallel"


def _rounds(proposal: Proposal) -> Iterator[Violation]:
    stages, passes = proposal.layout.mesh.pipeline_parallel, proposal.layout.batch.num_micro_batches
    rounds = max(passes // max(stages, 1), 1)
    if _is_pipeline(proposal, ScheduleName.INTERLEAVED) and passes % rounds:
        yield _needs_multiple(
            proposal, stages, why=f"interleaving {passes} micro-batches in {rounds} rounds in {proposal.who}"
        )


def _chunks_words(framework: Framework) -> str | None:
    fewest = framework.limits.zero_bubble_chunks
    if fewest == 1 or ScheduleName.ZB_H1 not in framework.schedules:
        return None
    return f"zb-h1 runs at least {fewest} chunks per stage"


def _chunks(proposal: Proposal) -> Iterator[Violation]:
    fewest, schedule = proposal.framework.limits.zero_bubble_chunks, proposal.layout.schedule
    if _is_pipeline(proposal, ScheduleName.ZB_H1) and schedule.virtual_stages < fewest:
        yield Violation(
            pointer="/plan/virtual_stages",
            rule=f"zb-h1 runs at least {fewest} chunks per stage in {proposal.who}, "
            f"not {schedule.virtual_stages}",
            nearest_legal=(fewest,),
        )


def _again_words(framework: Framework) -> str | None:
    if not framework.limits.repeats_recompute_for_weights or not framework.splits_backward:
        return None
    return "layers are recomputed whole with no schedule that makes gradients of weights apart"


def runs_again(framework: Framework, schedule: ScheduleName, recompute: Recompute) -> bool:
    """Whether a layer that is recomputed would run again for every gradient of its weights."""
    repeats = framework.limits.repeats_recompute_for_weights and schedule.splits_backward
    return repeats and recompute.mode is RecomputeMode.FULL


def _again(proposal: Proposal) -> Iterator[Violation]:
    schedule = proposal.layout.schedule.name
    if any(runs_again(proposal.framework, schedule, option) for option in proposal.layout.recompute):
        yield Violation(
            pointer="/plan/recompute",
            rule=f"{proposal.who} runs a recomputed layer again for every gradient of its weights that "
            f"{schedule} makes apart",
            nearest_legal=(RecomputeMode.NONE.value,),
        )


_SCHEDULE: Final = frozenset({Part.MESH, Part.SCHEDULE})
_BATCH: Final = frozenset({Part.MESH, Part.BATCH})
RULES: Final = (
    Rule(name="schedules", parts=_SCHEDULE, words=_schedules_words, check=_schedules),
    Rule(name="micro-batches-fill-stages", parts=_BATCH, words=_filled_words, check=_filled),
    Rule(name="fewest-micro-batches", parts=_SCHEDULE | _BATCH, words=_fewest_words, check=_fewest),
    Rule(name="interleaved-groups", parts=_SCHEDULE | _BATCH, words=_turns_words, check=_turns),
    Rule(
        name="interleaved-fill-stages",
        parts=_SCHEDULE | _BATCH,
        words=_interleaved_words,
        check=_interleaved,
    ),
    Rule(name="interleaved-fill-rounds", parts=_SCHEDULE | _BATCH, words=_rounds_words, check=_rounds),
    Rule(name="zero-bubble-chunks", parts=_SCHEDULE, words=_chunks_words, check=_chunks),
    Rule(
        name="zero-bubble-recompute",
        parts=frozenset({Part.SCHEDULE, Part.RECOMPUTE}),
        words=_again_words,
        check=_again,
        outcome=lambda _framework: Outcome.SILENT,
    ),
)
