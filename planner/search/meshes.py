"""The layouts to consider: every legal combination of what is decided before layers are split.

They come in three steps, so that one cheap bound can rule out many at once: meshes with a batch,
their variants in sharding and recomputation, and the variants' schedules.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import comb
from typing import Final, Self

from planner.expansion import with_modules, zero_sharding
from planner.framework import Framework, Grain
from planner.job import AttentionKind
from planner.legality import missing_modules
from planner.limits import LayerSplit
from planner.rules.communication import EXCHANGE
from planner.rules.layers import comes_out
from planner.rules.pipeline import ACCUMULATION, least_group, runs_again
from planner.rules.rule import Part
from planner.search.fewer_devices import Degrees
from planner.search.legal_meshes import KEEPS_ALL, Keeps, legal_meshes
from planner.search.module_sets import module_sets
from planner.search.offloading import Chain, Choice, Offloading, fixed_choice
from planner.search.placings import Groups, Orders, grouped
from planner.search.sending import keeps_to_what_is_fixed, may_send_otherwise, sent
from planner.search.space import (
    BATCHED,
    MOST_PASSES,
    OFFLOADED,
    SCHEDULED,
    SHARDED,
    Space,
    bare,
)
from planner.setting import divisors
from planner.strategy import (
    Batch,
    Layout,
    Mesh,
    RankOrder,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    ZeroStage,
)

MOST_COUNTED: Final = 10**300
"""Where counting plans stops: near the end of what a float holds."""


def meshes(space: Space) -> Iterator[tuple[Mesh, Batch]]:
    """Yield every legal mesh with every legal batch on it."""
    batches = _Batches(space)
    for ways in legal_meshes(space):
        for mesh in ways:
            for batch in batches.on(mesh):
                yield mesh, batch


class _Batches:
    """The legal batches of meshes: the same for all with as many replicas, as far as no rule objects."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._known: dict[int, tuple[Batch, ...]] = {}

    def on(self, mesh: Mesh) -> tuple[Batch, ...]:
        """Return the batches of a mesh, the smallest micro-batch first."""
        known = self._known.get(mesh.data_parallel)
        if known is None:
            known = self._known[mesh.data_parallel] = tuple(_batches(self._space, mesh))
        if not self._space.rules[BATCHED]:
            return known
        return tuple(batch for batch in known if self._space.runs(bare(mesh, batch), step=BATCHED))


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchedMesh:
    """A mesh, its batches with the smallest micro-batch first, its chains of choices.

    ``ways`` are the mesh with every way to split attention: ``mesh``, which saves least for backward, is the
    first of them. ``size`` counts layouts and plans.
    """

    mesh: Mesh
    ways: tuple[Mesh, ...]
    batches: tuple[Batch, ...]
    chains: tuple[Chain, ...]
    orders: tuple[RankOrder, ...]
    """The orders of its ranks that make a difference, its own first."""
    size: "SpaceSize"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleCounts:
    """How many schedules there are: with whole backward passes, with gradients of weights made apart."""

    whole: int = 0
    apart: int = 0

    @classmethod
    def of(cls, found: Iterable[Schedule]) -> Self:
        """Count schedules."""
        splits = [schedule.name.splits_backward for schedule in found]
        return cls(whole=splits.count(False), apart=splits.count(True))


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceSize:
    """How many layouts a space has, and how many plans: layouts times ways to place layers."""

    layouts: int
    plans: float


def by_mesh(
    space: Space, degrees: Iterable[Degrees] | None = None, *, keeps: Keeps = KEEPS_ALL
) -> Iterator[BatchedMesh]:
    """Yield every legal mesh that has a sharding, and a batch with a schedule.

    They are those on all devices, or those of some degrees that are worth a look.
    """
    batches, choices, orders = _ScheduledBatches(space), Choices(space), Orders.of(space)
    for meshes_alike in legal_meshes(space, degrees, keeps=keeps):
        mesh = meshes_alike[0]
        own, counts = batches.on(mesh)
        chains = choices.chains(mesh, own[0]) if own else ()
        if chains:
            found = [choice for chain in chains for choice in chain]
            in_order = orders.on(mesh)
            yield BatchedMesh(
                mesh=mesh,
                ways=meshes_alike,
                batches=own,
                chains=chains,
                orders=in_order,
                size=_size(space, meshes_alike, counts, found, num_orders=len(in_order)),
            )


class _ScheduledBatches:
    """The legal batches of meshes that have a schedule, with how many they have together."""

    def __init__(self, space: Space) -> None:
        self._space, self._legal = space, _Batches(space)
        self._counts: dict[tuple[int, int], ScheduleCounts] = {}
        self._known: dict[tuple[int, int], tuple[tuple[Batch, ...], ScheduleCounts]] = {}

    def on(self, mesh: Mesh) -> tuple[tuple[Batch, ...], ScheduleCounts]:
        """Return the batches of a mesh: the same for equal stages and replicas, as far as no rule objects."""
        if self._space.rules[BATCHED]:
            return self._found(mesh)
        key = (mesh.pipeline_parallel, mesh.data_parallel)
        if key not in self._known:
            self._known[key] = self._found(mesh)
        return self._known[key]

    def _found(self, mesh: Mesh) -> tuple[tuple[Batch, ...], ScheduleCounts]:
        each = [(batch, self._schedules(mesh, batch)) for batch in self._legal.on(mesh)]
        each = [(batch, counts) for batch, counts in each if counts.whole or counts.apart]
        whole, apart = sum(counts.whole for _, counts in each), sum(counts.apart for _, counts in each)
        return tuple(batch for batch, _ in each), ScheduleCounts(whole=whole, apart=apart)

    def _schedules(self, mesh: Mesh, batch: Batch) -> ScheduleCounts:
        # Schedules are judged by stages and micro-batches alone.
        key = (mesh.pipeline_parallel, batch.num_micro_batches)
        if key not in self._counts:
            self._counts[key] = ScheduleCounts.of(schedules(self._space, mesh, batch))
        return self._counts[key]


def _size(
    space: Space,
    meshes: Sequence[Mesh],
    counts: ScheduleCounts,
    choices: Sequence[Choice],
    *,
    num_orders: int,
) -> SpaceSize:
    """Count layouts and plans: every schedule with every choice that it runs with, on meshes alike."""
    framework, stages, layouts, plans = space.setting.framework, meshes[0].pipeline_parallel, 0, 0.0
    chosen = [modes for choice in choices for modes in _at_once(space, choice.recompute)]
    families = [(counts.whole, chosen)]
    if counts.apart:
        own = [choice.recompute for choice in choices if not choice.activations]
        apart = [modes for each in own for modes in _at_once(space, apart_modes(framework, each))]
        families.append((counts.apart, apart))
    for num_schedules, modes in families:
        times = num_schedules * len(meshes) * num_orders
        for size, number in Counter(map(len, filter(None, modes))).items():
            layouts += times * number
            plans += times * number * _placements(space, stages, size)
    return SpaceSize(layouts=layouts, plans=plans)


def _at_once(space: Space, recompute: tuple[Recompute, ...]) -> list[tuple[Recompute, ...]]:
    """Return the modes that the layers of one plan choose from: one after the other where the job decides."""
    return [(mode,) for mode in recompute] if space.recomputes_alike else [recompute]


def scheduled(space: Space, layout: Layout, schedule: Schedule) -> Layout | None:
    """Return a layout under a schedule, with the modes of recomputation that go with it; None for none."""
    modes = layout.recompute
    if schedule.name.splits_backward and layout.activations:
        return None  # not searched
    if schedule.name.splits_backward:
        modes = apart_modes(space.setting.framework, modes)
    return replace(layout, schedule=schedule, recompute=modes) if modes else None


def apart_modes(framework: Framework, recompute: Sequence[Recompute]) -> tuple[Recompute, ...]:
    """Return the modes of recomputation that go with schedules that make gradients of weights apart."""
    return tuple(mode for mode in recompute if not runs_again(framework, ScheduleName.ZB_H1, mode))


def space_size(meshes: Iterable[BatchedMesh]) -> SpaceSize:
    """Add up the layouts and plans of meshes."""
    sizes = [batched.size for batched in meshes]
    return SpaceSize(layouts=sum(size.layouts for size in sizes), plans=sum(size.plans for size in sizes))


class Choices:
    """The legal choices on meshes: the same for all that no rule tells apart."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._recompute = _recompute_choices(space)
        self._known: dict[object, tuple[Choice, ...]] = {}
        # What is never sent otherwise breaks no rule of how it is.
        otherwise = may_send_otherwise(space)
        rules = (rule for rule in space.rules[SHARDED] if rule is not EXCHANGE or otherwise)
        self._read = frozenset().union(*(rule.parts for rule in rules))
        self._offloading = Offloading(space)
        self._groups = Groups.of(space)
        self._chains: dict[object, tuple[Chain, ...]] = {}

    def on(self, mesh: Mesh, batch: Batch) -> tuple[Choice, ...]:
        """Return the choices of a mesh with a batch; nothing is on the host but what the caller fixed."""
        key = self._key(mesh, batch)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = tuple(self._legal(mesh, batch))
        return known

    def chains(self, mesh: Mesh, batch: Batch) -> tuple[Chain, ...]:
        """Return the choices of a mesh with a batch, one to a chain, and chains with more on the host."""
        key = self._key(mesh, batch)
        known = self._chains.get(key)
        if known is None:
            own = self.on(mesh, batch)
            more = (chain for choice in own for chain in self._offloading.beside(choice, mesh, batch))
            known = self._chains[key] = (*((choice,) for choice in own), *more)
        return known

    def _key(self, mesh: Mesh, batch: Batch) -> object:
        """Return what tells choices apart. Rules of the host read a mesh's replicas and stages alone."""
        if Part.BATCH in self._read:
            return (mesh, batch)
        return (
            mesh
            if Part.MESH in self._read
            else (
                mesh.data_parallel,
                mesh.context_parallel,
                mesh.expert_replicas == 1,
                mesh.pipeline_parallel > 1,
                self._groups.sizes(mesh),
            )
        )

    def _legal(self, mesh: Mesh, batch: Batch) -> Iterator[Choice]:
        space, framework, sizes = self._space, self._space.setting.framework, self._groups.sizes(mesh)
        for zero_stage in _zero_stages(space, mesh):
            usual = zero_sharding(zero_stage, replicas=mesh.replicas, framework=framework)
            shardings = (way for own in grouped(usual, sizes) for way in sent(space, own))
            for sharding, recompute in product(shardings, self._recompute):
                if not keeps_to_what_is_fixed(space, sharding):
                    continue
                choice = fixed_choice(space, Choice(sharding=sharding, recompute=recompute))
                layout = choice.on(mesh, batch)
                is_legal = not layout.offloads or space.runs(layout, step=OFFLOADED)
                if is_legal and space.runs(layout, step=SHARDED):
                    yield choice


def variants(space: Space, mesh: Mesh, batch: Batch) -> Iterator[Layout]:
    """Yield the layouts of a mesh and batch that differ in all but their schedule; one chunk a stage."""
    for chain in Choices(space).chains(mesh, batch):
        for choice in chain:
            yield choice.on(mesh, batch)


def schedules(space: Space, mesh: Mesh, batch: Batch) -> Iterator[Schedule]:
    """Yield every legal schedule of a mesh and batch, fewest virtual stages first."""
    stages, framework = mesh.pipeline_parallel, space.setting.framework
    most = (space.setting.num_layers + _spare_ends(framework, stages)) // stages
    names = (
        framework.schedules
        if stages > 1
        else tuple({ACCUMULATION: None} | dict.fromkeys(framework.schedules))
    )
    for virtual_stages in range(1, most + 1 if stages > 1 else 2):
        for name in names:
            schedule = Schedule(name=name, virtual_stages=virtual_stages)
            if name is ScheduleName.INTERLEAVED:
                schedule = replace(schedule, interleave_group_size=_group_size(space, mesh, batch))
            if _is_considered(space, mesh, batch, schedule):
                yield schedule


def _group_size(space: Space, mesh: Mesh, batch: Batch) -> int | None:
    """Return how many micro-batches a chunk runs at a time: as fixed, or the fewest that come out even."""
    fixed = space.fixed("schedule")
    if isinstance(fixed, Schedule):
        return fixed.interleave_group_size
    least = least_group(stages=mesh.pipeline_parallel, passes=batch.num_micro_batches)
    return None if least == mesh.pipeline_parallel else least


def _spare_ends(framework: Framework, stages: int) -> int:
    """Return the chunks that may hold no decoder layer: the embedding's and the head's."""
    return 2 if framework.empty_ends and stages > 1 and can_split_freely(framework) else 0


def can_split_freely(framework: Framework) -> bool:
    """Whether a search may give each stage the layers that suit it; else it spreads them evenly."""
    return framework.limits.layer_split is LayerSplit.ANY


def _placements(space: Space, stages: int, options: int) -> float:
    """Return the ways to give every stage its layers and every layer one of some options."""
    framework, layers = space.setting.framework, space.setting.num_layers
    if stages > 1 and not can_split_freely(framework):
        return float(min(options**layers, MOST_COUNTED))
    return _ways_to_place(layers, stages, spare=_spare_ends(framework, stages), options=options)


@cache
def _ways_to_place(layers: int, stages: int, *, spare: int, options: int) -> float:
    """Return compositions of equal layers into stages times modes per layer, as far as a float goes."""
    free = layers - stages + min(spare, stages)
    if free < 0:
        return 0.0
    return float(min(comb(free + stages - 1, stages - 1) * options**layers, MOST_COUNTED))


def _batches(space: Space, mesh: Mesh) -> Iterator[Batch]:
    total = space.setting.job.global_batch_size
    if total % mesh.data_parallel:
        return
    per_replica = total // mesh.data_parallel
    for size in divisors(per_replica):
        passes = per_replica // size
        if space.allowed("micro_batch_size", size) and space.allowed("num_micro_batches", passes):
            yield Batch(micro_batch_size=size, num_micro_batches=passes)


def _zero_stages(space: Space, mesh: Mesh) -> list[ZeroStage]:
    framework = space.setting.framework
    # Experts may have replicas where nothing else has: over the ranks that share the other layers.
    alone = mesh.replicas == 1 and (mesh.expert_replicas == 1 or not space.setting.has_experts)
    legal: tuple[ZeroStage, ...] = framework.zero_stages
    if alone and space.fixed("zero_stage") is None:
        legal = (ZeroStage.NONE,)
    if mesh.pipeline_parallel > 1:
        legal = tuple(stage for stage in legal if stage in framework.pipeline_zero_stages)
    return [stage for stage in legal if space.allowed("zero_stage", stage.value)]


def _recompute_choices(space: Space) -> list[tuple[Recompute, ...]]:
    """Return the sets of modes that layers choose from, none of them empty.

    Where the job decides, that is one mode each, and all sets of modules together: one of them is chosen
    once the rest is (see `planner.search.module_sets`).
    """
    framework, fixed = space.setting.framework, space.fixed("recompute")
    if isinstance(fixed, Recompute) and fixed.modules:
        chosen = with_modules(fixed, framework)
        return [] if missing_modules(space.setting, chosen) else [(chosen,)]
    options = [option for option in framework.recompute if fixed is None or _names_mode(option, fixed)]
    if framework.recompute_grain is Grain.JOB:
        each = (_for_the_job(space, option, is_fixed=fixed is not None) for option in options)
        return [modes for modes in each if modes]
    if fixed is None and space.setting.job.attention is AttentionKind.FLASH:
        # A fused core saves no scores: recomputing it alone costs time and frees next to nothing.
        options = [option for option in options if option.mode is not RecomputeMode.SELECTIVE]
    return [tuple(options)] if options else []


def _for_the_job(space: Space, option: Recompute, *, is_fixed: bool) -> tuple[Recompute, ...]:
    """Return a mode, or every set of modules that is worth trying; a fused core where it is asked for."""
    if option.mode is not RecomputeMode.SELECTIVE:
        return (option,)
    return module_sets(space.setting, is_fixed=is_fixed)


def _names_mode(option: Recompute, fixed: object) -> bool:
    return fixed in {option, option.mode}


def _is_considered(space: Space, mesh: Mesh, batch: Batch, schedule: Schedule) -> bool:
    if not space.allowed("virtual_stages", schedule.virtual_stages):
        return False
    name, stages, passes = schedule.name, mesh.pipeline_parallel, batch.num_micro_batches
    if not name.runs(schedule.virtual_stages) or not _has_its_micro_batches(schedule, stages, passes):
        return False
    fixed = space.fixed("schedule")
    if fixed is not None and fixed not in {schedule.name, schedule}:
        return False
    if fixed is None and mesh.pipeline_parallel == 1 and schedule.name is ScheduleName.GPIPE:
        return False  # without stages every schedule is gradient accumulation; 1F1B keeps the least
    chunks = mesh.pipeline_parallel * schedule.virtual_stages
    if 2 * chunks * batch.num_micro_batches > MOST_PASSES or not _can_be_filled(space, chunks):
        return False
    return space.runs(replace(bare(mesh, batch), schedule=schedule), step=SCHEDULED)


def _has_its_micro_batches(schedule: Schedule, stages: int, passes: int) -> bool:
    """Whether a schedule has the micro-batches that it needs, and the stages to wait for."""
    match schedule.name:
        case ScheduleName.DUALPIPE_V:
            return stages > 1 and passes >= 2 * stages
        case ScheduleName.ZB_H1 if schedule.virtual_stages > 1:
            return stages > 1 and passes % stages == 0
        case ScheduleName.BREADTH_FIRST | ScheduleName.ZB_H1 | ScheduleName.ZB_V:
            return stages > 1
    return True


def _can_be_filled(space: Space, chunks: int) -> bool:
    """Whether the framework can spread the layers over so many chunks."""
    framework, layers = space.setting.framework, space.setting.num_layers
    return (
        chunks == 1
        or can_split_freely(framework)
        or comes_out(framework, num_layers=layers, num_chunks=chunks)
    )
