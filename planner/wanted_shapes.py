"""What to measure for a request: the shapes its search asks for, those first that move its predictions most.

Every kernel and collective that the search prices is noted. How far each one matters is found by
pricing the best plans once more with that one figure a standard deviation slower: what is well known,
or takes no time, moves nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from math import sqrt
from typing import Any, Final

from planner.cost.collective import CollectiveCosts
from planner.cost.compute import KernelCosts
from planner.cost.group_shape import GroupShape
from planner.cost.memory_passes import ELEMENT_BYTES, MOVED, SAME_BACKWARD
from planner.cost.model import CostModel
from planner.cost.product_rows import shape_of_phase
from planner.expansion import expand_short_plan
from planner.formats import attention_precision
from planner.job import Precision
from planner.legality import layout_violations
from planner.planning import PlanRequest, searched_space
from planner.played_plan import play
from planner.profile import Estimate
from planner.search.best_first import search
from planner.search.outcome import Candidate
from planner.setting import Setting
from planner.strategy import Mesh, ShortPlan
from planner.units import NANOSECONDS_PER_SECOND, Bytes, Seconds
from planner.workload.operators import AttentionCore, Collective, MatrixProduct, MemoryPass, Phase

FORMAT: Final = "meshplan-shapes/1"
WEIGHED_PLANS: Final = 3
"""The best plan and the next ones on other meshes: a measurement may change their order."""
LARGEST_COLUMNS: Final = 8192
"""Memory-bound passes are known by their bytes alone; rows of at most so many elements make them up."""
ELEMENT: Final = 4
"""Bytes of the fp32 elements that collectives are measured with."""
TIME_IS_UP: Final = "time_limit"
"""The reason of the profiler that says nothing of the shape."""
COLLECTIVE_KEYS: Final = ("operation", "world_size", "ranks_per_node", "payload_bytes")
NEIGHBOURS: Final = (1, 0.5, 2)
"""A memory-bound pass is read off a curve over its size, which needs three of them."""

Sizes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelWanted:
    """A kernel to measure, as a row of a profile says it."""

    operator: str
    dtype: str
    phase: str
    sizes: Sizes

    def to_document(self) -> dict[str, Any]:
        """Return it as a list of shapes says it."""
        names = {"operator": self.operator, "dtype": self.dtype, "phase": self.phase}
        return {**names, "shape": dict(self.sizes)}

    @classmethod
    def of(cls, operator: str, dtype: str, phase: str, sizes: Mapping[str, int]) -> "KernelWanted":
        """Return the kernel of these sizes, in whatever order they come."""
        in_order = tuple(sorted(sizes.items()))
        return cls(operator=operator, dtype=dtype, phase=phase, sizes=in_order)


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveWanted:
    """A collective to measure, as a row of a profile says it."""

    operation: str
    world_size: int
    ranks_per_node: int
    payload_bytes: int

    def to_document(self) -> dict[str, Any]:
        """Return it as a list of shapes says it."""
        return {name.name: getattr(self, name.name) for name in fields(self)}


Wanted = KernelWanted | CollectiveWanted


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedShapes:
    """What to measure for a request, and what is predicted before that.

    ``influence`` says by how much, as a share, the step time of the best plans moves if that figure is
    off by its standard deviation.
    """

    influence: Mapping[Wanted, float]
    """Most first."""
    mesh: Mesh | None
    step_time_seconds: Seconds | None
    """Of the best plan; None where nothing fits."""

    def uncertainty(self, *, without: frozenset[Wanted] = frozenset()) -> float:
        """Return how far the step time may be off by what was not measured, as a share of it."""
        return sqrt(sum(share**2 for wanted, share in self.influence.items() if wanted not in without))

    def to_document(self, *, without: frozenset[Wanted] = frozenset()) -> dict[str, Any]:
        """Return the list for the profiler, without what was measured already."""
        left = [wanted for wanted in self.influence if wanted not in without]
        return {
            "format": FORMAT,
            "kernels": [self._entry(wanted) for wanted in left if isinstance(wanted, KernelWanted)],
            "collectives": [self._entry(wanted) for wanted in left if isinstance(wanted, CollectiveWanted)],
        }

    def _entry(self, wanted: Wanted) -> dict[str, Any]:
        return {**wanted.to_document(), "influence": self.influence[wanted]}


def wanted_shapes(request: PlanRequest) -> WantedShapes:
    """Return the shapes that the search for a request asks for, in the order in which they matter.

    Raises InvalidRequest for what cannot be planned.
    """
    space = searched_space(request)
    ear = _Ear()
    model = _listening_model(request, space.setting, ear)
    outcome = search(space, model, request.solver)
    candidates = _weighed(outcome.best, outcome.runners_up)
    influence = dict.fromkeys(ear.heard, 0.0)
    for candidate in candidates:
        for wanted, share in _influences(model, ear, candidate).items():
            influence[wanted] = max(influence.get(wanted, 0.0), share)
    in_order = sorted(influence, key=lambda wanted: (-influence[wanted], -ear.uncertain_seconds(wanted)))
    best = outcome.best
    return WantedShapes(
        influence={wanted: influence[wanted] for wanted in in_order},
        mesh=best.layout.mesh if best else None,
        step_time_seconds=best.makespan_ns / NANOSECONDS_PER_SECOND if best else None,
    )


def shapes_of_plans(request: PlanRequest, plans: Iterable[ShortPlan]) -> WantedShapes:
    """Return the shapes by which some plans are priced, those first that are least certain.

    Plans that are illegal, or whose layers have no place, ask for nothing. The ``influence`` is the share
    of the fastest plan's step by which one use of a figure may be off.
    """
    setting = searched_space(request).setting
    ear = _Ear()
    model = _listening_model(request, setting, ear)
    fastest_ns, mesh = 0, None
    for plan in plans:
        fixed = expand_short_plan(plan, setting)
        if layout_violations(setting, fixed.layout) or fixed.violations or fixed.assignment is None:
            continue
        makespan_ns = play(model, fixed.layout, fixed.assignment).played.makespan_ns
        if mesh is None or makespan_ns < fastest_ns:
            fastest_ns, mesh = makespan_ns, fixed.layout.mesh
    seconds = fastest_ns / NANOSECONDS_PER_SECOND
    in_order = sorted(ear.heard, key=lambda wanted: -ear.uncertain_seconds(wanted))
    return WantedShapes(
        influence={wanted: ear.uncertain_seconds(wanted) / seconds for wanted in in_order},
        mesh=mesh,
        step_time_seconds=None if mesh is None else seconds,
    )


def _listening_model(request: PlanRequest, setting: Setting, ear: "_Ear") -> "_ListeningModel":
    model = _ListeningModel(
        setting=setting,
        group=setting.cluster.node_groups[0],
        profiles=request.profiles,
        memory_fraction=request.constraints.memory_fraction,
    )
    model.listen(ear)
    return model


def _weighed(best: Candidate | None, others: list[Candidate]) -> list[Candidate]:
    """Return the best plan and the next best on other meshes."""
    if best is None:
        return []
    by_mesh = {best.layout.mesh: best}
    for candidate in sorted(others, key=lambda candidate: candidate.rank):
        by_mesh.setdefault(candidate.layout.mesh, candidate)
    return list(by_mesh.values())[:WEIGHED_PLANS]


def _influences(model: "_ListeningModel", ear: "_Ear", candidate: Candidate) -> dict[Wanted, float]:
    """Return by how much each figure moves the step time of one plan, as a share of it.

    Rows that speak for a figure together have equal shares of its variance.
    """
    ear.heard_now.clear()
    before = _makespan_ns(model, candidate)
    shares: dict[Wanted, float] = {}
    for together, estimate in dict(ear.heard_now).items():
        ear.slowed = {together: 1 + estimate.relative_error}
        moved = abs(_makespan_ns(model, candidate) - before) / before
        for wanted in together:
            shares[wanted] = max(shares.get(wanted, 0.0), moved / sqrt(len(together)))
    ear.slowed = {}
    return shares


def _makespan_ns(model: "_ListeningModel", candidate: Candidate) -> int:
    model.forget()
    return play(model, candidate.layout, candidate.assignment).played.makespan_ns


@dataclass(kw_only=True, slots=True)
class _Ear:
    """Hears every figure that a cost model asks for, and may make one of them slower.

    A figure is known by the rows that speak for it together.
    """

    heard: dict[Wanted, Estimate] = field(default_factory=dict)
    heard_now: dict[tuple[Wanted, ...], Estimate] = field(default_factory=dict)
    slowed: dict[tuple[Wanted, ...], float] = field(default_factory=dict)

    def hear(self, together: tuple[Wanted, ...], estimate: Estimate) -> Estimate:
        """Note what a figure is read from; return it, slower where it is the one to be slowed."""
        if estimate.seconds <= 0 or not together:
            return estimate
        self.heard_now.setdefault(together, estimate)
        for wanted in together:
            self.heard.setdefault(wanted, estimate)
        return estimate.scaled(self.slowed.get(together, 1.0))

    def uncertain_seconds(self, wanted: Wanted) -> Seconds:
        """Return the standard deviation of a figure."""
        estimate = self.heard[wanted]
        return estimate.seconds * estimate.relative_error


class _ListeningModel(CostModel):
    """A cost model that tells which figures it asks for, and that can forget what it has priced."""

    def listen(self, ear: _Ear) -> None:
        """Have every kernel and collective pass by an ear."""
        precision = self.setting.job.precision
        self.kernels = _Kernels(self.kernels, ear, precision)  # type: ignore[assignment]  # asks it all
        self.collectives = _Collectives(self.collectives, ear)  # type: ignore[assignment]  # asks it all
        self.states = self._state_costs()

    def forget(self) -> None:
        """Price everything anew: what was kept was priced at other speeds."""
        for kept in fields(self):
            if not kept.init:
                getattr(self, kept.name).clear()


class _Kernels:
    """The kernels of a device, heard."""

    def __init__(self, costs: KernelCosts, ear: _Ear, precision: Precision) -> None:
        self._costs, self._ear, self._precision = costs, ear, precision

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the kernels have
        return getattr(self._costs, name)

    def matrix_product(self, op: MatrixProduct, *, phase: Phase) -> Estimate:
        return self._ear.hear(
            (product_wanted(op, phase, self._precision),), self._costs.matrix_product(op, phase=phase)
        )

    def attention(self, op: AttentionCore, *, phase: Phase) -> Estimate:
        return self._ear.hear(
            attention_wanted(op, phase, self._precision), self._costs.attention(op, phase=phase)
        )

    def memory_pass(self, op: MemoryPass, *, phase: Phase) -> Estimate:
        moved = op.forward_bytes if phase is Phase.FORWARD else op.backward_bytes
        wanted = pass_wanted(op.kind, moved, phase, self._precision)
        return self._ear.hear(wanted, self._costs.memory_pass(op, phase=phase))

    def optimizer_step(
        self, num_parameters: float, bytes_per_parameter: Bytes, *, kind: str = "adam"
    ) -> Estimate:
        estimate = self._costs.optimizer_step(num_parameters, bytes_per_parameter, kind=kind)
        moved = num_parameters * bytes_per_parameter
        known = kind if (kind, Phase.OPTIMIZER.value) in MOVED else "adam"
        return self._ear.hear(pass_wanted(known, moved, Phase.OPTIMIZER, Precision.FP32), estimate)


class _Collectives:
    """The collectives of a node group, heard."""

    def __init__(self, costs: CollectiveCosts, ear: _Ear) -> None:
        self._costs, self._ear = costs, ear

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the collectives have
        return getattr(self._costs, name)

    def seconds(self, operation: Collective, *, payload_bytes: Bytes, shape: GroupShape) -> Estimate:
        estimate = self._costs.seconds(operation, payload_bytes=payload_bytes, shape=shape)
        return self._ear.hear((collective_wanted(operation, payload_bytes, shape),), estimate)


def product_wanted(op: MatrixProduct, phase: Phase, precision: Precision) -> KernelWanted:
    """Return the row that speaks for one phase of a product: single, grouped or batched.

    A grouped product keeps the sizes of its forward product; the gradients of a single one have their
    own, and so have those of a batched one, which are forward products too.
    """
    rows = op.rows * op.repeats if phase is Phase.WEIGHT_GRADIENT else op.rows
    m, n, k = shape_of_phase(rows, op.columns, op.inner, phase=phase)
    if not op.has_weights:
        wide = attention_precision(precision).value
        sizes = {"batch": op.count, "m": m, "n": n, "k": k}
        return KernelWanted.of("batched_matrix_product", wide, Phase.FORWARD.value, sizes)
    if op.count == 1:
        return KernelWanted.of("matrix_product", precision.value, phase.value, {"m": m, "n": n, "k": k})
    sizes = {"groups": op.count, "m": rows, "n": op.columns, "k": op.inner}
    return KernelWanted.of("grouped_matrix_product", precision.value, phase.value, sizes)


def attention_wanted(op: AttentionCore, phase: Phase, precision: Precision) -> tuple[KernelWanted, ...]:
    """Return the row that speaks for an attention core; none where rows cannot say it.

    Rows know neither windows and chunks nor keys of another length.
    """
    if op.window is not None or op.chunk is not None or op.query_length != op.key_length:
        return ()
    sizes = {
        "batch": op.batch,
        "sequence": op.query_length,
        "heads": op.heads,
        "kv_heads": op.kv_heads,
        "head_dim": op.head_dim,
        "value_dim": op.value_dim,
        "causal": int(op.causal),
    }
    return (KernelWanted.of("attention", attention_precision(precision).value, phase.value, sizes),)


def pass_wanted(kind: str, moved: Bytes, phase: Phase, precision: Precision) -> tuple[KernelWanted, ...]:
    """Return the rows that speak for a pass that moves so many bytes: its size and those beside it."""
    phase = Phase.FORWARD if kind in SAME_BACKWARD else phase
    known, dtype = MOVED.get((kind, phase.value)), attention_precision(precision).value
    # How many rows a table of embeddings has is no matter of what a look-up moves.
    if known is None or kind == "embedding" or dtype not in ELEMENT_BYTES:
        return ()
    elements = moved / known.bytes_per_element(ELEMENT_BYTES[dtype])
    return tuple(
        KernelWanted.of(kind, dtype, phase.value, _pass_sizes(kind, round(size)))
        for factor in NEIGHBOURS
        if (size := factor * elements) >= 1
    )


def collective_wanted(operation: Collective, payload_bytes: Bytes, shape: GroupShape) -> CollectiveWanted:
    """Return the row that speaks for a collective; its payload has whole elements for each rank."""
    unit = ELEMENT * shape.size
    return CollectiveWanted(
        operation=operation.value,
        world_size=shape.size,
        ranks_per_node=shape.ranks_per_node,
        payload_bytes=max(1, round(payload_bytes / unit)) * unit,
    )


def measured_in(profile: Mapping[str, Any]) -> frozenset[Wanted]:
    """Return what a profile document has tried to measure: its rows, and what it had to skip.

    What there was no time for is not among them.
    """
    skipped = [row for row in profile["facts"].get("skipped", ()) if row["reason"] != TIME_IS_UP]
    kernels = [row for row in (*profile["kernels"], *skipped) if "shape" in row]
    collectives = [row for row in (*profile["collectives"], *skipped) if "ranks_per_node" in row]
    return frozenset(
        [
            *(KernelWanted.of(row["operator"], row["dtype"], row["phase"], row["shape"]) for row in kernels),
            *(CollectiveWanted(**{key: row[key] for key in COLLECTIVE_KEYS}) for row in collectives),
        ]
    )


def _pass_sizes(kind: str, elements: int) -> dict[str, int]:
    """Return the sizes of a pass over so many elements, rows as long as they divide them evenly."""
    if kind in {"adam", "sgd"}:
        return {"params": elements}
    if kind in {"add", "copy", "dropout", "gelu", "gated_activation"}:
        return {"elems": elements}
    if kind == "rotary":
        # Its rows have two halves.
        elements += elements % 2
    columns = min(LARGEST_COLUMNS, elements & -elements)
    return {"rows": elements // columns, "cols": columns}
