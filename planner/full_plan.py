"""The full form of a plan, both ways: a layout and how many layers each chunk runs how."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from planner.cost.pipeline import Assignment
from planner.errors import InvalidRequest
from planner.expansion import FixedPlan, with_modules
from planner.framework import Framework
from planner.framework_rules import layer_violations
from planner.job import Loss
from planner.placement import NodeGroups, placed_groups, stage_placements
from planner.reference_layers import with_reference_layers, without_reference_layers
from planner.setting import Setting
from planner.strategy import (
    NOTHING_ON_HOST,
    Chunk,
    HostShares,
    LayerOffload,
    LayerRange,
    LayerWay,
    Layout,
    Offload,
    RecomputeMode,
    Stage,
    TrainingPlan,
    Violation,
    chunk_places,
)
from planner.workload.body import Body
from planner.workload.layers import Layer

PLAIN: Final = LayerWay()
RECOMPUTE_ORDER: Final = (RecomputeMode.NONE, RecomputeMode.SELECTIVE, RecomputeMode.FULL)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """A layer by its role and its number among those of that role, and how it runs."""

    kind: str
    number: int
    way: LayerWay = PLAIN


# --- reading -----------------------------------------------------------------------------------


def read_full_plan(plan: TrainingPlan, setting: Setting) -> FixedPlan:
    """Return what a full plan means; layers that are missing, repeated or misplaced are violations."""
    plan = without_reference_layers(plan) if setting.job.loss is Loss.DPO else plan
    _refuse_unpriced(plan)
    chunks, counted = _chunks_in_order(plan), _counted_places(setting.body)
    options = _layer_ways(chunks, counted, setting.framework)
    layout = Layout(
        mesh=plan.mesh,
        batch=plan.batch,
        schedule=plan.schedule,
        sharding=plan.sharding,
        recompute=tuple(option.recompute for option in options),
        on_host=_host_shares(plan),
        activations=(
            tuple(option.activations for option in options)
            if any(option.activations for option in options)
            else ()
        ),
    )
    placed = placed_groups(plan, setting.cluster)
    violations = tuple(_chain_violations(plan, chunks, setting.body))
    if violations:
        return FixedPlan(layout=layout, assignment=None, violations=(*violations, *placed.violations))
    assignment = tuple(_counts(chunk, counted, options, setting) for chunk in chunks)
    layers = layer_violations(setting, layout, tuple(map(sum, assignment)))
    return FixedPlan(
        layout=layout,
        assignment=assignment,
        node_groups=placed.node_groups,
        violations=(*layers, *placed.violations),
    )


def _counted_places(body: Body) -> dict[tuple[str, int], int]:
    """Return the class of every counted layer by its role and number."""
    places = _chain_places(body)
    ends = accumulate((len(unit) for unit in body.units), initial=len(body.first))
    next(ends)
    return {places[end - 1]: number for end, number in zip(ends, body.sequence, strict=True)}


def _counts(
    chunk: Chunk, counted: dict[tuple[str, int], int], options: Sequence[LayerWay], setting: Setting
) -> tuple[int, ...]:
    """Return how many layers of a chunk run how, class by class."""
    found: Counter[tuple[int, LayerWay]] = Counter()
    for layers in chunk.layers:
        way = _way_of(layers, setting.framework)
        for number in range(layers.first, layers.first + layers.count):
            if (layers.kind, number) in counted:
                found[counted[layers.kind, number], way] += 1
    classes = range(len(setting.body.classes))
    return tuple(found[number, option] for number in classes for option in options)


def _chunks_in_order(plan: TrainingPlan) -> list[Chunk]:
    placed = [(chunk.virtual_stage, stage.stage, chunk) for stage in plan.stages for chunk in stage.chunks]
    folds, last = plan.schedule.name.folds, plan.mesh.pipeline_parallel - 1

    def place(entry: tuple[int, int, Chunk]) -> tuple[int, int]:
        turn, stage, _ = entry
        return turn, last - stage if folds and turn == 1 else stage

    return [chunk for _, _, chunk in sorted(placed, key=place)]


def _layer_ways(
    chunks: Sequence[Chunk], counted: dict[tuple[str, int], int], framework: Framework
) -> tuple[LayerWay, ...]:
    kinds = {kind for kind, _ in counted}
    found = {
        _way_of(layers, framework) for chunk in chunks for layers in chunk.layers if layers.kind in kinds
    }
    return tuple(sorted(found, key=_way_rank)) or (LayerWay(),)


def _way_of(layers: LayerRange, framework: Framework) -> LayerWay:
    return LayerWay(
        recompute=with_modules(layers.recompute, framework), activations=layers.offload.activations.cpu
    )


def _way_rank(way: LayerWay) -> tuple[object, ...]:
    return (RECOMPUTE_ORDER.index(way.recompute.mode), way.recompute.modules, way.activations)


def _host_shares(plan: TrainingPlan) -> HostShares:
    """Return the shares of states on the host, which all layers have in common."""
    shares: HostShares | None = None
    for pointer, layers in _ranges_with_pointers(plan):
        own = HostShares(
            optimizer=layers.offload.optimizer.cpu,
            parameters=layers.offload.parameters.cpu,
            gradients=layers.offload.gradients.cpu,
        )
        if shares is not None and own != shares:
            raise InvalidRequest(
                "all layers keep the same shares of their states on the host: "
                f"{_share_words(own)} here, {_share_words(shares)} before",
                pointer=f"{pointer}/offload",
                nearest_legal=(_share_words(shares),),
            )
        shares = own
    return shares or NOTHING_ON_HOST


def _share_words(shares: HostShares) -> str:
    return f"optimizer {shares.optimizer:g}, parameters {shares.parameters:g}, gradients {shares.gradients:g}"


def _ranges_with_pointers(plan: TrainingPlan) -> Iterator[tuple[str, LayerRange]]:
    for stage in plan.stages:
        for number, chunk in enumerate(stage.chunks):
            for index, layers in enumerate(chunk.layers):
                yield f"/plan/stages/{stage.stage}/chunks/{number}/layers/{index}", layers


def _refuse_unpriced(plan: TrainingPlan) -> None:
    """Refuse what the plan form can say and the cost model cannot price yet."""
    for pointer, layers in _ranges_with_pointers(plan):
        offload = layers.offload
        tiers = (offload.optimizer, offload.parameters, offload.gradients, offload.activations)
        for word, is_unpriced, what in (
            ("offload", any(tier.nvme for tier in tiers), "a share on NVMe drives"),
            ("mesh", layers.mesh is not None, "a layer's own mesh"),
            ("sharding", layers.sharding is not None, "a layer's own sharding"),
            ("of", layers.of is not None, "a layer of another model"),
        ):
            if is_unpriced:
                raise InvalidRequest(f"{what} cannot be priced yet", pointer=f"{pointer}/{word}")


def _chain_violations(plan: TrainingPlan, chunks: Sequence[Chunk], body: Body) -> list[Violation]:
    """Check that the chunks, in execution order, hold the model's chain exactly once."""
    expected = _chain_places(body)
    stages, turns = plan.mesh.pipeline_parallel, plan.schedule.virtual_stages
    if len(chunks) != stages * turns:
        rule = f"{stages} stages of {turns} chunks are {stages * turns} chunks, the plan lists {len(chunks)}"
        return [Violation(pointer="/plan/stages", rule=rule, nearest_legal=(stages * turns,))]
    listed = [
        (layers.kind, layers.first + offset)
        for chunk in chunks
        for layers in chunk.layers
        for offset in range(layers.count)
    ]
    if listed == expected:
        return list(_split_violations(chunks, body))
    position = next(
        (i for i, (ours, theirs) in enumerate(zip(listed, expected, strict=False)) if ours != theirs),
        min(len(listed), len(expected)),
    )
    wanted = expected[position] if position < len(expected) else None
    found = listed[position] if position < len(listed) else None
    rule = (
        f"layer {position} in execution order must be {_layer_name(wanted)}, "
        f"the plan has {_layer_name(found)}"
    )
    return [Violation(pointer="/plan/stages", rule=rule)]


def _split_violations(chunks: Sequence[Chunk], body: Body) -> Iterator[Violation]:
    """Check that chunks end where stages can: before a counted layer with what goes with it, or after all."""
    places = _chain_places(body)
    legal = set(accumulate((len(unit) for unit in body.units), initial=len(body.first)))
    sizes = (sum(layers.count for layers in chunk.layers) for chunk in chunks)
    for end in list(accumulate(sizes))[:-1]:
        if end not in legal:
            last = "what precedes the first counted layer sits in the first chunk, what follows the last one "
            last += "in the last, and what stands between two of them goes with the second"
            rule = f"no chunk can end after {_layer_name(places[end - 1] if end else None)}: {last}"
            yield Violation(pointer="/plan/stages", rule=rule)


def _layer_name(entry: tuple[str, int] | None) -> str:
    return f"{entry[0]} {entry[1]}" if entry else "nothing"


# --- writing -----------------------------------------------------------------------------------


def full_plan(
    layout: Layout, assignment: Assignment, setting: Setting, *, node_groups: NodeGroups = ()
) -> TrainingPlan:
    """Return the full form of a layout and an assignment of layers.

    ``node_groups`` names that of each stage; without it all are on the first one.

    Within a chunk the most recomputed layers of a class come first: equal layers cost the same in any
    order, and this one is canonical.
    """
    stages = layout.mesh.pipeline_parallel
    placements = stage_placements(layout.mesh, node_groups or setting.cluster.group_names[:1] * stages)
    places = chunk_places(layout.schedule, stages=stages)
    chunks = dict(zip(places, _chunk_ranges(layout, assignment, setting.body), strict=True))
    plan = TrainingPlan(
        mesh=layout.mesh,
        batch=layout.batch,
        schedule=layout.schedule,
        sharding=layout.sharding,
        stages=tuple(
            Stage(
                stage=stage,
                placement=(placements[stage],),
                chunks=tuple(
                    Chunk(virtual_stage=turn, layers=chunks[turn, stage])
                    for turn in range(layout.schedule.virtual_stages)
                ),
            )
            for stage in range(stages)
        ),
    )
    return with_reference_layers(plan) if setting.job.loss is Loss.DPO else plan


def _chain_places(body: Body) -> list[tuple[str, int]]:
    """Return the role of every layer of a chain and its number among those of that role, in order."""
    seen: Counter[str] = Counter()
    places = []
    for layer in _chain(body):
        places.append((layer.kind, seen[layer.kind]))
        seen[layer.kind] += 1
    return places


def _chain(body: Body) -> Iterator[Layer]:
    yield from body.first
    for unit in body.units:
        yield from unit
    yield from body.last


def _chunk_ranges(layout: Layout, assignment: Assignment, body: Body) -> list[tuple[LayerRange, ...]]:
    names, units = iter(_chain_places(body)), iter(body.sequence)
    last = len(assignment) - 1

    def take(count: int, way: LayerWay = PLAIN) -> list[_Place]:
        return [_Place(kind=k, number=n, way=way) for k, n in (next(names) for _ in range(count))]

    ranges = []
    for chunk, counts in enumerate(assignment):
        places = take(len(body.first)) if chunk == 0 else []
        numbers = [next(units) for _ in range(sum(counts))]
        for number, way in zip(numbers, _ways(numbers, counts, layout.ways), strict=True):
            places += take(len(body.classes[number]), way)
        places += take(len(body.last)) if chunk == last else []
        ranges.append(tuple(_ranges(places, layout.on_host)))
    return ranges


def _ways(numbers: Sequence[int], counts: Sequence[int], options: Sequence[LayerWay]) -> Iterator[LayerWay]:
    """Yield how each layer of a chunk runs, given the class of each and how many of a class run how."""
    left = {
        number: iter(
            [
                option
                for option, count in reversed(
                    list(zip(options, counts[number * len(options) :], strict=False))
                )
                for _ in range(count)
            ]
        )
        for number in set(numbers)
    }
    return (next(left[number]) for number in numbers)


def _ranges(places: Sequence[_Place], on_host: HostShares) -> Iterator[LayerRange]:
    """Yield consecutive layers of one role that run alike as one entry."""
    start = 0
    for end in range(1, len(places) + 1):
        first = places[start]
        if end < len(places) and _continues(first, places[end], end - start):
            continue
        yield LayerRange(
            kind=first.kind,
            first=first.number,
            count=end - start,
            recompute=first.way.recompute,
            offload=LayerOffload(
                optimizer=Offload(cpu=on_host.optimizer),
                parameters=Offload(cpu=on_host.parameters),
                gradients=Offload(cpu=on_host.gradients),
                activations=Offload(cpu=first.way.activations),
            ),
        )
        start = end


def _continues(first: _Place, other: _Place, offset: int) -> bool:
    return (other.kind, other.number, other.way) == (first.kind, first.number + offset, first.way)
