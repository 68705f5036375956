"""The legal meshes of a space: degrees, with every way to spread experts and to split attention."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from planner.search.fewer_devices import Degrees
from planner.search.placings import Orders, ordered, rank_orders
from planner.search.schemes import Schemes
from planner.search.space import MESHED, ONE_SAMPLE, Space, bare
from planner.setting import degree_is_legal, divisors, legal_tensor_parallel
from planner.strategy import Mesh
from planner.workload.dispatch import EXPERT_AXIS, EXPERT_TENSOR_AXIS

Ways = tuple[Mesh, ...]
"""A mesh with every way to split attention, that which saves least for backward first."""


def _always(_ways: Ways) -> bool:
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeps:
    """Which meshes are worth a look: ``plain``, whatever their experts do, and with those ``spread``."""

    plain: Callable[[Ways], bool] = _always
    spread: Callable[[Ways], bool] = _always


KEEPS_ALL: Final = Keeps()


def legal_meshes(
    space: Space, degrees: Iterable[Degrees] | None = None, *, keeps: Keeps = KEEPS_ALL
) -> Iterator[Ways]:
    """Yield the legal meshes of each kind: those that differ in how attention is split alone.

    On all devices, or of some degrees. No rule of a framework but those of schemes reads how it is split.
    """
    schemes = Schemes(space=space)
    plain = _meshes(space, _degrees(space) if degrees is None else degrees)
    quick = (mesh for mesh in plain if (ways := schemes.on(mesh)) and keeps.plain(ways))
    for mesh in _with_experts(space, quick):
        ways = schemes.on(mesh)
        if not keeps.spread(ways):
            continue
        if _sequence_splits(space, mesh) and space.runs(bare(ways[0], ONE_SAMPLE), step=MESHED):
            yield ways


def _degrees(space: Space) -> Iterator[Degrees]:
    """Yield the degrees of meshes on all devices."""
    devices, setting = space.num_devices, space.setting
    for tensor in legal_tensor_parallel(setting):
        if devices % tensor or not space.allowed("tensor_parallel", tensor):
            continue
        if tensor > 1 and not setting.framework.tensor_parallel:
            continue
        for context in _context_degrees(space, devices // tensor):
            for pipeline in divisors(devices // tensor // context):
                yield tensor, context, pipeline, devices // tensor // context // pipeline


def _meshes(space: Space, degrees: Iterable[Degrees]) -> Iterator[Mesh]:
    for each in degrees:
        yield from _plain_meshes(space, each)


def _plain_meshes(space: Space, degrees: Degrees) -> Iterator[Mesh]:
    """Yield the meshes of some degrees, with and without sequence parallel."""
    tensor, context, pipeline, data = degrees
    if pipeline > 1 and not space.setting.framework.pipeline_parallel:
        return
    if not space.allowed("pipeline_parallel", pipeline) or not space.allowed("data_parallel", data):
        return
    usual = rank_orders(space)[0]
    for sequence in _sequence_parallel(space, tensor):
        mesh = Mesh(
            data_parallel=data,
            tensor_parallel=tensor,
            context_parallel=context,
            pipeline_parallel=pipeline,
            sequence_parallel=sequence,
        )
        yield ordered(mesh, usual)


def _with_experts(space: Space, meshes: Iterator[Mesh]) -> Iterator[Mesh]:
    """Yield each mesh with every way to spread experts over the ranks of a stage."""
    axes = (EXPERT_AXIS, EXPERT_TENSOR_AXIS)
    if not any(space.setting.splits_over(axis) for axis in axes):
        if all(space.allowed(axis, 1) for axis in axes):
            yield from meshes
        return
    orders = Orders.of(space)
    in_node = space.setting.cluster.node_groups[0].devices_per_node
    for mesh in meshes:
        ranks = mesh.replicas * mesh.tensor_parallel
        cuts = _expert_degrees(space, EXPERT_TENSOR_AXIS, ranks)
        cuts = [degree for degree in cuts if degree <= max(in_node, mesh.tensor_parallel)]
        for expert in _expert_degrees(space, EXPERT_AXIS, ranks):
            for tensor in cuts:
                spread = replace(mesh, expert_parallel=expert, expert_tensor_parallel=tensor)
                if ranks % (expert * tensor) == 0 and orders.allows(spread):
                    yield spread


def _expert_degrees(space: Space, axis: str, ranks: int) -> list[int]:
    """Return the degrees of an axis of experts: those that divide the ranks, 1 where there are none."""
    setting = space.setting
    degrees = divisors(ranks) if setting.splits_over(axis) else (1,)
    return [
        degree for degree in degrees if degree_is_legal(setting, axis, degree) and space.allowed(axis, degree)
    ]


def _context_degrees(space: Space, devices: int) -> list[int]:
    setting = space.setting
    can_split = setting.framework.context_parallel and setting.sequence_lengths
    return [
        degree
        for degree in (divisors(devices) if can_split else (1,))
        if space.allowed("context_parallel", degree)
        and degree_is_legal(setting, "context_parallel", degree)
        and all(length % degree == 0 for length in setting.sequence_lengths)
    ]


def _sequence_parallel(space: Space, tensor_parallel: int) -> list[bool]:
    has_choice = tensor_parallel > 1 and bool(space.setting.sequence_lengths)
    choices = [False, True] if has_choice else [False]
    return [choice for choice in choices if space.fixed("sequence_parallel") in {None, choice}]


def _sequence_splits(space: Space, mesh: Mesh) -> bool:
    lengths = (length // mesh.context_parallel for length in space.setting.sequence_lengths)
    return not mesh.sequence_parallel or all(length % mesh.tensor_parallel == 0 for length in lengths)
