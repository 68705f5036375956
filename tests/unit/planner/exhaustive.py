"""The best plan of a small request, found by trying every plan that the contract has words for.

Every word of the flat plan form has its values here, whether a search decides it or not. The certificate's
dimensions say which words are open: those take every value, the others their default, and the rules of
legality alone judge what comes out. So a word that a search begins to decide is tried here from then on.
Layers are placed one by one and each plan is replayed: of the search nothing is used but operators' costs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from math import gcd
from typing import Final

from planner.communication import own_format
from planner.cost.model import CostModel
from planner.cost.pipeline import Assignment, PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.replay import replay
from planner.expansion import in_classes, zero_sharding
from planner.framework import Grain
from planner.framework_rules import broken, rules_of
from planner.legality import Setting, layout_violations, missing_modules
from planner.limits import SCHEMES, STATES, LayerSplit
from planner.planning import PlanRequest, searched_space
from planner.rules.layers import comes_out, usual_split
from planner.rules.rule import Part, Proposal
from planner.search.dimensions import dimensions
from planner.strategy import (
    DEFAULT_EXPERT_RANK_ORDER,
    DEFAULT_RANK_ORDER,
    PIPELINE_INSIDE,
    Batch,
    ContextParallelScheme,
    Layout,
    Mesh,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    Sharding,
    ZeroStage,
)
from planner.wire import WireFormat
from tests.unit.planner.search.enumeration import every_assignment

OPEN: Final = ("searched", "fixed by framework")
"""How a certificate's words on a dimension begin where every value is tried.

What a framework fixes its rules leave one legal value.
"""


EXPERT_ORDERS: Final[Mapping[object, tuple[str, ...]]] = {
    DEFAULT_RANK_ORDER: DEFAULT_EXPERT_RANK_ORDER,
    PIPELINE_INSIDE: ("expert_tensor_parallel", "expert_parallel", "pipeline_parallel", "data_parallel"),
}
"""The order of the ranks of experts that goes with each order of all ranks."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What trying everything finds: the least step time and a plan of it, None where none fits."""

    makespan_ns: int | None
    layout: Layout | None
    assignment: Assignment | None


@dataclass(frozen=True, kw_only=True)
class Open:
    """What is left to decide: the words that take every value, and what the caller says of the others."""

    setting: Setting
    words: Mapping[str, str]
    fixed: Mapping[str, object]
    bounds: Mapping[str, tuple[float, float]]

    def values(self, word: str, every: list[object], *, default: object) -> list[object]:
        """Return the values that a word takes."""
        if word in self.fixed:
            return [self.fixed[word]]
        if not self.words.get(word, "").startswith(OPEN):
            return [default]
        if word not in self.bounds:
            return every
        low, high = self.bounds[word]
        return [value for value in every if isinstance(value, int) and low <= value <= high]

    def numbers(self, word: str, most: int, *, default: int = 1) -> list[int]:
        """Return the numbers from 1 that a word takes."""
        found = self.values(word, list(range(1, most + 1)), default=default)
        return [number for number in found if isinstance(number, int) and number <= most]


def best_of_every_plan(request: PlanRequest) -> Tried:
    """Try every plan of a request."""
    space = searched_space(request)
    model = CostModel(
        setting=space.setting,
        group=space.setting.cluster.node_groups[0],
        profiles=request.profiles,
        memory_fraction=request.constraints.memory_fraction,
    )
    best = Tried(makespan_ns=None, layout=None, assignment=None)
    for layout in every_layout(request):
        problem = model.problem(layout)
        for assignment in every_way(space.setting, layout, problem):
            taken = _taken_ns(problem, assignment, best.makespan_ns)
            if taken is not None:
                best = Tried(makespan_ns=taken, layout=layout, assignment=assignment)
    return best


def best_of_layout(setting: Setting, layout: Layout, problem: PipelineProblem) -> int | None:
    """Return the least step time of a layout, None where nothing fits."""
    best: int | None = None
    for assignment in every_way(setting, layout, problem):
        taken = _taken_ns(problem, assignment, best)
        best = best if taken is None else taken
    return best


def _taken_ns(problem: PipelineProblem, assignment: Assignment, best: int | None) -> int | None:
    """Return the step time of a plan where it fits and beats the best so far, else None."""
    costs = chunk_costs(problem, assignment)
    stages, passes = problem.shape.num_stages, problem.shape.num_micro_batches
    # A stage runs its own passes one after the other: most plans need no replay to be seen to be slow.
    busiest = max(
        sum(cost.forward_ns + cost.backward_ns for cost in costs[problem.shape.own(stage)])
        for stage in range(stages)
    )
    if best is not None and passes * busiest >= best:
        return None
    if max(stage_peak_bytes(problem, costs, stage) for stage in range(stages)) > problem.limit_bytes:
        return None
    taken = replay(problem, costs).makespan_ns
    return taken if best is None or taken < best else None


def every_way(setting: Setting, layout: Layout, problem: PipelineProblem) -> Iterator[Assignment]:
    """Yield every way to give layers to chunks: the framework's own where it does that itself."""
    if problem.shape.num_chunks == 1 or setting.framework.limits.layer_split is LayerSplit.ANY:
        yield from every_assignment(problem)
    elif comes_out(setting.framework, num_layers=setting.num_layers, num_chunks=problem.shape.num_chunks):
        yield in_classes(usual_split(setting, layout), setting.body)


# --- layouts -----------------------------------------------------------------------------------


def every_layout(request: PlanRequest) -> Iterator[Layout]:
    """Yield every legal layout of a request."""
    space = searched_space(request)
    asked = Open(
        setting=space.setting,
        words=dimensions(space),
        fixed=request.constraints.fixed,
        bounds=request.constraints.bounds,
    )
    for mesh in _meshes(asked):
        shardings, modes = list(_shardings(asked, mesh)), list(_recomputations(asked))
        for batch in _batches(asked, mesh):
            for choices in product(list(_schedules(asked, mesh, batch)), shardings, modes):
                schedule, sharding, recompute = choices
                layout = Layout(
                    mesh=mesh, batch=batch, schedule=schedule, sharding=sharding, recompute=recompute
                )
                if not layout_violations(asked.setting, layout):
                    yield layout


def _meshes(asked: Open) -> Iterator[Mesh]:
    devices = asked.setting.cluster.num_devices
    axes = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel")
    for tensor, context, pipeline, data in product(*(asked.numbers(axis, devices) for axis in axes)):
        world = tensor * context * pipeline * data
        if world > devices or (world < devices and not _may_leave_devices(asked)):
            continue
        mesh = Mesh(
            tensor_parallel=tensor,
            context_parallel=context,
            pipeline_parallel=pipeline,
            data_parallel=data,
        )
        yield from _meshes_of_degrees(asked, mesh)


def _may_leave_devices(asked: Open) -> bool:
    """Whether a plan may use fewer devices than there are."""
    return asked.words.get("num_devices", "").startswith(OPEN)


def _meshes_of_degrees(asked: Open, mesh: Mesh) -> Iterator[Mesh]:
    """Yield a mesh with every other choice of its own."""
    ranks = mesh.data_parallel * mesh.context_parallel * mesh.tensor_parallel
    in_node = asked.setting.cluster.node_groups[0].devices_per_node
    for expert, expert_tensor in product(
        asked.numbers("expert_parallel", ranks), asked.numbers("expert_tensor_parallel", ranks)
    ):
        if ranks % (expert * expert_tensor) or expert_tensor > max(in_node, mesh.tensor_parallel):
            continue
        spread = replace(mesh, expert_parallel=expert, expert_tensor_parallel=expert_tensor)
        for choices in _other_choices(asked, spread):
            whole = replace(spread, **choices)  # type: ignore[arg-type]  # values of each word's own type
            if not _breaks_rules_of_meshes(asked.setting, whole):
                yield whole


def _other_choices(asked: Open, mesh: Mesh) -> Iterator[dict[str, object]]:
    """Yield the words of a mesh that are no degrees of it, by value."""
    # One rank has nothing to share, and context parallelism of one no scheme.
    halves: list[object] = [False, True] if mesh.tensor_parallel > 1 else [False]
    own = asked.setting.framework.limits.context_parallel_schemes
    usual = own[0] if own and mesh.context_parallel > 1 else ContextParallelScheme.RING
    schemes: list[object] = list(SCHEMES) if mesh.context_parallel > 1 else [usual]
    every: dict[str, tuple[list[object], object]] = {
        "sequence_parallel": (halves, False),
        "context_parallel_scheme": (schemes, usual),
        "all_to_all_degree": (list(range(1, mesh.context_parallel + 1)), 1),
        "rank_order": (_orders(), DEFAULT_RANK_ORDER),
    }
    values = [asked.values(word, own, default=default) for word, (own, default) in every.items()]
    for chosen in product(*values):
        choices = dict(zip(every, chosen, strict=True))
        yield choices | {"expert_rank_order": EXPERT_ORDERS[choices["rank_order"]]}


def _orders() -> list[object]:
    """Return the orders of ranks that have tensor and context parallel innermost, as certificates say."""
    innermost = DEFAULT_RANK_ORDER[:2]
    return [order for order in permutations(DEFAULT_RANK_ORDER) if order[:2] == innermost]


def _breaks_rules_of_meshes(setting: Setting, mesh: Mesh) -> bool:
    """Whether a mesh breaks a rule about its own words, whatever else is decided: seen before all that is."""
    plain = Layout(
        mesh=mesh,
        batch=Batch(micro_batch_size=1, num_micro_batches=1),
        schedule=Schedule(),
        sharding=Sharding(),
        recompute=(Recompute(),),
    )
    rules = (rule for rule in rules_of(setting.framework) if rule.parts <= {Part.MESH})
    return bool(broken(rules, Proposal(setting=setting, layout=plain)))


def _batches(asked: Open, mesh: Mesh) -> Iterator[Batch]:
    total = asked.setting.job.global_batch_size
    sizes, passes = asked.numbers("micro_batch_size", total), asked.numbers("num_micro_batches", total)
    for size, count in product(sizes, passes):
        if size * count * mesh.data_parallel == total:
            yield Batch(micro_batch_size=size, num_micro_batches=count)


def _schedules(asked: Open, mesh: Mesh, batch: Batch) -> Iterator[Schedule]:
    stages, layers = mesh.pipeline_parallel, asked.setting.num_layers
    most = layers // stages + 2 if stages > 1 else 1
    fixed = asked.fixed.get("schedule")
    # One stage runs its passes in one order whatever it is called: alternating, it keeps the fewest of them.
    names = tuple(ScheduleName) if stages > 1 else (ScheduleName.ONE_FORWARD_ONE_BACKWARD,)
    for name, turns in product(names, asked.numbers("virtual_stages", most)):
        group = _fewest_that_come_out_even(stages, batch.num_micro_batches)
        for size in [group] if turns > 1 and name is ScheduleName.INTERLEAVED else [None]:
            schedule = Schedule(name=name, virtual_stages=turns, interleave_group_size=size)
            if fixed is None or fixed in {name, schedule}:
                yield schedule


def _fewest_that_come_out_even(stages: int, passes: int) -> int | None:
    """Return how many micro-batches a chunk runs at a time, as certificates say; None for one per stage."""
    for size in range(stages, passes + 1):
        left = passes - passes // size * size
        if left in {0, *range(stages, passes)}:
            return size if size > stages else None
    return None


def _shardings(asked: Open, mesh: Mesh) -> Iterator[Sharding]:
    """Yield the ways to share states: by ZeRO stage over all replicas, and over parts of them where open."""
    replicas, framework = mesh.replicas, asked.setting.framework
    for stage in asked.values("zero_stage", list(ZeroStage), default=ZeroStage.NONE):
        usual = zero_sharding(ZeroStage(stage), replicas=replicas, framework=framework)  # type: ignore[arg-type]  # a number
        found = [usual]
        if asked.words.get("shard_group", "").startswith(OPEN):
            found += _in_parts(usual, _group_sizes(asked, mesh))
        for sharding in found:
            yield from (
                sent for sent in _sent(asked, sharding) if not _breaks_rules(asked.setting, mesh, sent)
            )


def _sent(asked: Open, sharding: Sharding) -> Iterator[Sharding]:
    """Yield a sharding in every format that a certificate names, freed after forward and kept, where open."""
    every: list[list[object]] = []
    for word in ("gather_dtype", "reduce_dtype"):
        said = asked.words[word].replace(",", "").split()
        own = own_format(asked.setting, word)
        formats: list[object] = [None, *(str(each) for each in WireFormat if each in said and each != own)]
        every.append(asked.values(word, formats, default=None))
    usual = sharding.reshard_after_forward
    gathers = sharding.zero_stage is ZeroStage.PARAMETERS and sharding.parameters > 1
    both: list[object] = [True, False] if gathers else [usual]
    kept = asked.values("reshard_after_forward", both, default=usual)
    for gather, reduction, reshards in product(*every, kept):
        sent = {"gather_dtype": gather, "reduce_dtype": reduction, "reshard_after_forward": reshards}
        yield replace(sharding, **sent)  # type: ignore[arg-type]  # values of each word's own type


def _breaks_rules(setting: Setting, mesh: Mesh, sharding: Sharding) -> bool:
    """Whether a sharding breaks a rule on a mesh, whatever else is decided."""
    plain = Layout(
        mesh=mesh,
        batch=Batch(micro_batch_size=1, num_micro_batches=1),
        schedule=Schedule(),
        sharding=sharding,
        recompute=(Recompute(),),
    )
    read = {Part.MESH, Part.REPLICAS, Part.SHARDING}
    rules = (rule for rule in rules_of(setting.framework) if rule.parts <= read)
    return bool(broken(rules, Proposal(setting=setting, layout=plain)))


def _in_parts(usual: Sharding, groups: list[int]) -> Iterator[Sharding]:
    """Yield the same states shared by smaller groups of replicas."""
    sizes = [groups if getattr(usual, state) > 1 else [1] for state in STATES]
    for parameters, gradients, optimizer in product(*sizes):
        parted = replace(usual, parameters=parameters, gradients=gradients, optimizer=optimizer)
        if parted != usual:
            yield parted


def _group_sizes(asked: Open, mesh: Mesh) -> list[int]:
    """Return how many nearest replicas share each level of links in some order of ranks; all come last."""
    (group,) = asked.setting.cluster.node_groups
    domains = {group.devices_per_node, *(level.devices for level in group.levels)}
    sizes = {mesh.replicas}
    for order in asked.values("rank_order", _orders(), default=DEFAULT_RANK_ORDER):
        own = replace(mesh, rank_order=order, expert_rank_order=EXPERT_ORDERS[order])  # type: ignore[arg-type]  # an order
        if own.stages_agree or not asked.setting.has_experts:
            devices = _devices_of_replicas(own)
            sizes |= {gcd(sum(number < each for number in devices), len(devices)) for each in domains}
    return sorted(sizes - {1})


def _devices_of_replicas(mesh: Mesh) -> list[int]:
    """Return the devices that hold what the first one holds."""
    outermost_first = mesh.rank_order[::-1]
    places = product(*(range(getattr(mesh, axis)) for axis in outermost_first))
    shared = {"data_parallel", "context_parallel"}
    return [
        number
        for number, place in enumerate(places)
        if all(at == 0 or axis in shared for axis, at in zip(outermost_first, place, strict=True))
    ]


def _recomputations(asked: Open) -> Iterator[tuple[Recompute, ...]]:
    """Yield the modes that layers may choose from: one each where the framework decides for the job."""
    framework, fixed = asked.setting.framework, asked.fixed.get("recompute")
    modes = tuple(option for option in framework.recompute if fixed is None or fixed in {option, option.mode})
    if framework.recompute_grain is Grain.LAYER:
        yield modes
        # Some schedules do not go with every mode.
        rest = tuple(mode for mode in modes if mode.mode is not RecomputeMode.FULL)
        if rest and rest != modes:
            yield rest
        return
    for mode in modes:
        yield from _for_the_job(asked, mode)


def _for_the_job(asked: Open, mode: Recompute) -> Iterator[tuple[Recompute, ...]]:
    """Yield a mode, or every set of modules as certificates say: a fused core in none unless one is fixed."""
    if mode.mode is not RecomputeMode.SELECTIVE:
        yield (mode,)
        return
    every = dict.fromkeys(asked.setting.framework.limits.recompute_modules.values())
    names = [name for name in every if not missing_modules(asked.setting, replace(mode, modules=(name,)))]
    if "without the fused attention core" in asked.words["recompute"]:
        names.remove("core_attention")
    for size in range(1, len(names) + 1):
        yield from ((replace(mode, modules=chosen),) for chosen in combinations(names, size))
