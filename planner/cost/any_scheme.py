"""Bounds on a mesh before it is decided how attention is split over context parallel.

A mesh is priced once, in the way that saves least for backward; attention alone is timed in every
other way. What that saves at most makes bounds that hold for all ways, and shows which cannot win.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from planner.cost.floors import ROUNDING_NS
from planner.cost.geometry import axis_stride
from planner.cost.ground import Member
from planner.cost.layer import LayerClock
from planner.cost.mesh_links import num_communicators
from planner.cost.model import CostModel
from planner.cost.pipeline import FixedPart, LayerClass, LayerOption, PipelineProblem
from planner.cost.tally import Tally
from planner.profile import Estimate
from planner.strategy import Mesh, RecomputeMode
from planner.units import NANOSECONDS_PER_SECOND, Bytes, Seconds
from planner.workload.attention import split_otherwise
from planner.workload.layers import Cut, Layer
from planner.workload.operators import AttentionCore, CollectivePass, Module, Operator
from planner.workload.recomputation import saved_bytes

Clock = LayerClock[Estimate, Tally]
CORE: Final = frozenset({Module.CORE_ATTENTION})
AXIS: Final = "context_parallel"


@dataclass(frozen=True, slots=True)
class SplitCost:
    """What one attention takes and keeps in one way to split it, the layer around it aside.

    ``rerun_bytes`` stay where the core runs again. ``kernels`` count those of both passes, which a host may
    launch too slowly.
    """

    forward: Seconds
    backward: Seconds
    kernels: tuple[int, int]
    saved_bytes: Bytes
    rerun_bytes: Bytes
    working_bytes: Bytes

    @property
    def figures(self) -> tuple[float, ...]:
        """All of it: of less nothing gets worse."""
        return (
            self.forward,
            self.backward,
            *self.kernels,
            self.saved_bytes,
            self.rerun_bytes,
            self.working_bytes,
        )


@dataclass(frozen=True, slots=True)
class Savings:
    """What a layer may take less than its mesh's own way to split attention, at most."""

    forward_ns: int = 0
    backward_ns: int = 0
    working_bytes: int = 0

    def __add__(self, other: "Savings") -> "Savings":
        """Return those of both layers."""
        return Savings(
            self.forward_ns + other.forward_ns,
            self.backward_ns + other.backward_ns,
            self.working_bytes + other.working_bytes,
        )


@dataclass(kw_only=True, eq=False)
class AnyScheme:
    """Bounds of one cost model over the ways to split attention; the first of ``ways`` is priced whole."""

    model: CostModel
    _cores: dict[tuple[Layer, Cut], tuple[AttentionCore, ...]] = field(default_factory=dict, init=False)
    _costs: dict[tuple[object, ...], SplitCost] = field(default_factory=dict, init=False)
    _savings: dict[tuple[object, ...], dict[Member, Savings]] = field(default_factory=dict, init=False)

    def problem(
        self, problem: PipelineProblem, ways: Sequence[Mesh], micro_batch_size: int
    ) -> PipelineProblem:
        """Return a problem no plan of which takes longer than the same in any of some ways."""
        savings = self._savings_of(ways, micro_batch_size)
        return replace(
            problem,
            classes=tuple(
                _relaxed_class(layers, savings[number]) for number, layers in enumerate(problem.classes)
            ),
            first=_relaxed_end(problem.first, savings["first"]),
            last=_relaxed_end(problem.last, savings["last"]),
            gather_bucket_ns=max(
                problem.gather_bucket_ns - max(own.forward_ns for own in savings.values()), 0
            ),
        )

    def undominated(self, ways: Sequence[Mesh], micro_batch_size: int) -> tuple[Mesh, ...]:
        """Return the ways of which no other is nowhere worse; of equal ones that which stands first."""
        kept: list[tuple[Mesh, tuple[float, ...]]] = []
        for mesh in ways:
            own = self._figures(mesh, micro_batch_size)
            if any(_nowhere_worse(other, own) for _, other in kept):
                continue
            kept = [(way, other) for way, other in kept if not _nowhere_worse(own, other)]
            kept.append((mesh, own))
        return tuple(mesh for mesh, _ in kept)

    def _figures(self, mesh: Mesh, micro_batch_size: int) -> tuple[float, ...]:
        clock = self.model.tallying(self.model.links(mesh))
        costs = (
            self._cost(core, mesh, micro_batch_size, clock)
            for layers in self.model.members.values()
            for layer in layers
            for core in self.cores_of(layer, mesh, micro_batch_size)
        )
        return (float(num_communicators(mesh)), *(figure for cost in costs for figure in cost.figures))

    def _savings_of(self, ways: Sequence[Mesh], micro_batch_size: int) -> dict[Member, Savings]:
        mesh = ways[0]
        key = (
            mesh.tensor_parallel,
            mesh.context_parallel,
            axis_stride(mesh, AXIS),
            len(ways),
            micro_batch_size,
        )
        if key not in self._savings:
            clock = self.model.tallying(self.model.links(mesh))
            self._savings[key] = {
                name: sum(
                    (
                        self._saving(core, ways, micro_batch_size, clock)
                        for layer in layers
                        for core in self.cores_of(layer, mesh, micro_batch_size)
                    ),
                    Savings(),
                )
                for name, layers in self.model.members.items()
            }
        return self._savings[key]

    def _saving(
        self,
        core: AttentionCore,
        ways: Sequence[Mesh],
        micro_batch_size: int,
        clock: Clock,
    ) -> Savings:
        """Return what one attention takes less at most than in the first way; kernels are fewest there."""
        own, *others = (self._cost(core, mesh, micro_batch_size, clock) for mesh in ways)
        return Savings(
            _at_least_ns(max(own.forward - other.forward for other in others)),
            _at_least_ns(max(own.backward - other.backward for other in others)),
            ceil(max(0.0, *(own.working_bytes - other.working_bytes for other in others))),
        )

    def _cost(self, core: AttentionCore, mesh: Mesh, micro_batch_size: int, clock: Clock) -> SplitCost:
        way = (mesh.head_exchange, mesh.gathers_keys)
        key = (core, mesh.context_parallel, way, axis_stride(mesh, AXIS))
        if key not in self._costs:
            operators = split_otherwise(core, self.model.cut(mesh, micro_batch_size))
            self._costs[key] = _split_cost(operators, clock)
        return self._costs[key]

    def cores_of(self, layer: Layer, mesh: Mesh, micro_batch_size: int) -> tuple[AttentionCore, ...]:
        """Return the fused cores of a layer as they are around a ring over all of context parallel.

        Nothing but the tokens and the heads of a rank matters to them.
        """
        if layer not in self.model.attending:
            return ()
        cut = replace(
            self.model.cut(mesh, micro_batch_size),
            sequence_parallel=False,
            head_exchange=1,
            gathers_keys=False,
            expert_parallel=1,
            expert_tensor_parallel=1,
        )
        if (layer, cut) not in self._cores:
            operators = layer.operators(cut)
            rings = {op.partner for op in operators if isinstance(op, CollectivePass) and op.axis == AXIS}
            self._cores[layer, cut] = tuple(
                op for op in operators if isinstance(op, AttentionCore) and op.name in rings
            )
        return self._cores[layer, cut]


def _split_cost(operators: Sequence[Operator], clock: Clock) -> SplitCost:
    forward, backward = clock.parts(operators)
    computing = [op for op in operators if not isinstance(op, CollectivePass)]
    return SplitCost(
        forward=sum(part.seconds for part in forward),
        backward=sum(part.seconds for part in backward),
        kernels=(len(forward), len(backward)),
        saved_bytes=saved_bytes(computing),
        rerun_bytes=saved_bytes(computing, recompute=CORE),
        working_bytes=max(
            (op.working_bytes for op in operators if isinstance(op, AttentionCore)), default=0.0
        ),
    )


def _at_least_ns(seconds: Seconds) -> int:
    """Return so many nanoseconds or more, by what rounding the passes of a layer may add."""
    return ceil(seconds * NANOSECONDS_PER_SECOND) + ROUNDING_NS if seconds > 0 else 0


def _nowhere_worse(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def _relaxed_class(layers: LayerClass, savings: Savings) -> LayerClass:
    return replace(layers, options=tuple(_relaxed_option(option, savings) for option in layers.options))


def _relaxed_option(option: LayerOption, savings: Savings) -> LayerOption:
    reruns = option.recompute.mode is not RecomputeMode.NONE
    in_backward = savings.backward_ns + (savings.forward_ns if reruns else 0)
    return replace(
        option,
        forward_ns=max(option.forward_ns - savings.forward_ns, 0),
        backward_ns=max(option.backward_ns - in_backward, option.weight_ns),
        working_bytes=max(option.working_bytes - savings.working_bytes, 0),
    )


def _relaxed_end(part: FixedPart, savings: Savings) -> FixedPart:
    return replace(
        part,
        forward_ns=max(part.forward_ns - savings.forward_ns, 0),
        backward_ns=max(part.backward_ns - savings.backward_ns, 0),
        working_bytes=max(part.working_bytes - savings.working_bytes, 0),
    )
