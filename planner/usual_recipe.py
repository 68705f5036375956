"""The plan that a framework's users set up by hand: its defaults, and as little model parallelism as fits.

The rule: micro-batches of one sample; the framework's own sharding, sequence parallelism, schedule and
split of layers; experts spread as far as a node goes. Tensor parallelism grows until it fills a node, then
the pipeline grows; data parallelism takes the rest. The first that fits without recomputation is taken, where
none does the first that fits with all layers recomputed.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from planner.cost.floors import Floors
from planner.cost.least_memory import LeastMemory
from planner.cost.model import CostModel
from planner.expansion import expand_short_plan
from planner.legality import Setting, degree_is_legal, divisors, layout_violations, legal_tensor_parallel
from planner.search.master import Solution
from planner.search.outcome import Candidate
from planner.search.sending import keeps_to_what_is_fixed
from planner.search.space import MOST_PASSES, Space
from planner.search.usual_split import play_usual_split
from planner.strategy import Layout, Recompute, RecomputeMode, ShortPlan
from planner.workload.dispatch import EXPERT_AXIS


def usual_recipe(space: Space, model: CostModel) -> Candidate | None:
    """Return the usual recipe within what the caller fixed; None where no plan of its kind fits."""
    memory = LeastMemory(model=model, floors=Floors(model=model, sizes=()))
    layouts = (layout for short in _recipes(space.setting) for layout in _legal(space, short))
    for layout in layouts:
        if memory.may_hold(layout):
            candidate = _played(space, model, layout)
            if candidate is not None:
                return candidate
    return None


def _recipes(setting: Setting) -> Iterator[ShortPlan]:
    """Yield flat plans, those that people try first in front."""
    experts = _expert_parallel(setting)
    modes = (RecomputeMode.NONE, RecomputeMode.FULL)
    for mode, (tensor, pipeline) in product(modes, tuple(_model_parallel(setting))):
        yield ShortPlan(
            tensor_parallel=tensor,
            pipeline_parallel=pipeline,
            expert_parallel=experts,
            recompute=Recompute(mode=mode),
        )


def _model_parallel(setting: Setting) -> Iterator[tuple[int, int]]:
    """Yield tensor and pipeline parallel degrees: the former up to a node, then the latter beside it."""
    in_node = divisors(setting.cluster.node_groups[0].devices_per_node)
    legal = legal_tensor_parallel(setting) if setting.framework.tensor_parallel else (1,)
    tensor = [degree for degree in legal if degree in in_node]
    yield from ((degree, 1) for degree in tensor)
    if setting.framework.pipeline_parallel:
        yield from ((tensor[-1], stages) for stages in divisors(setting.num_layers)[1:])


def _expert_parallel(setting: Setting) -> int:
    """Return the most ranks of a node over which experts come out even; 1 where there are none."""
    in_node = divisors(setting.cluster.node_groups[0].devices_per_node)
    legal = (degree for degree in in_node if degree_is_legal(setting, EXPERT_AXIS, degree))
    return max(legal) if setting.has_experts else 1


def _legal(space: Space, short: ShortPlan) -> Iterator[Layout]:
    """Yield the layout of a flat plan where it uses all devices, breaks no rule and is not ruled out."""
    fixed = expand_short_plan(short, space.setting)
    layout = fixed.layout
    if fixed.violations or layout.mesh.world_size != space.num_devices or not _is_allowed(space, layout):
        return
    passes = 2 * layout.mesh.pipeline_parallel * layout.batch.num_micro_batches
    if passes <= MOST_PASSES and not layout_violations(space.setting, layout):
        yield layout


def _is_allowed(space: Space, layout: Layout) -> bool:
    """Whether a layout keeps to what the caller fixed and bounded."""
    mesh, (recompute,) = layout.mesh, layout.recompute
    values = {
        "data_parallel": mesh.data_parallel,
        "tensor_parallel": mesh.tensor_parallel,
        "context_parallel": mesh.context_parallel,
        "pipeline_parallel": mesh.pipeline_parallel,
        "expert_parallel": mesh.expert_parallel,
        "expert_tensor_parallel": mesh.expert_tensor_parallel,
        "sequence_parallel": mesh.sequence_parallel,
        "micro_batch_size": layout.batch.micro_batch_size,
        "num_micro_batches": layout.batch.num_micro_batches,
        "virtual_stages": layout.schedule.virtual_stages,
        "zero_stage": layout.sharding.zero_stage.value,
    }
    order = space.fixed("rank_order")
    return (
        all(space.allowed(word, value) for word, value in values.items())
        and keeps_to_what_is_fixed(space, layout.sharding)
        and order in {None, mesh.rank_order}
        and space.fixed("schedule") in {None, layout.schedule, layout.schedule.name}
        and space.fixed("recompute") in {None, recompute, recompute.mode}
    )


def _played(space: Space, model: CostModel, layout: Layout) -> Candidate | None:
    """Return a layout with the framework's own split of its layers; None where it does not fit."""
    problem = model.problem(layout)
    # A full pipeline holds as much of few micro-batches as of many, and is played sooner.
    few = min(problem.shape.num_micro_batches, 2 * problem.shape.num_stages)
    short = replace(problem, shape=replace(problem.shape, num_micro_batches=few))
    if not isinstance(play_usual_split(short, layout, space.setting), Solution):
        return None
    solved = play_usual_split(problem, layout, space.setting)
    if not isinstance(solved, Solution):
        return None
    return Candidate(
        layout=layout, problem=problem, assignment=solved.assignment, makespan_ns=solved.makespan_ns
    )
