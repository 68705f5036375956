"""Step times and memory that no plan of a mesh undercuts, for all its micro-batch sizes at once.

Meshes whose layers are cut alike make a family: its layers are timed once, as sweeps.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.capped_layers import capped_layers_ns
from planner.cost.ground import Member, cut_key
from planner.cost.layer import LayerClock, recomputed_modules
from planner.cost.model import ROUNDING, CostModel, LayerKey
from planner.cost.replica_floors import ReplicaFloors, Share, Traffic
from planner.cost.sweep import MANY_SAMPLES, SWEEPS, Floats, Line, Sweep, SweptCosts, SweptOperators
from planner.cost.whole_layers import StageEnds, whole_layers_ns
from planner.strategy import HostShares, LayerWay, Mesh, Recompute, RecomputeMode, Sharding
from planner.units import NANOSECONDS_PER_SECOND, Flops
from planner.workload.layers import Cut, Layer
from planner.workload.operators import CollectivePass, Module, Phase
from planner.workload.recomputation import NOTHING, WHOLE_LAYER, saved_bytes
from planner.workload.weights import weight_products

NONE: Final = Recompute()
ROUTED: Final = frozenset({Module.MOE, Module.MOE_ACTIVATION})
"""What layers run differently when experts are spread differently."""
NO_TRAFFIC: Final = Traffic(shares=(), update_ns=0)
ROUNDING_NS: Final = 2
"""Most by which rounding a layer's passes one by one exceeds rounding sums of them."""

PHASES: Final = (Phase.FORWARD, Phase.BACKWARD)

Modes = tuple[Recompute, ...]
"""The modes of recomputation that layers choose from."""


class SweptLayer:
    """One layer cut in one way: what it takes and what it keeps, by micro-batch size."""

    def __init__(
        self,
        layer: Layer,
        key: LayerKey,
        mesh: Mesh,
        *,
        model: CostModel,
        costs: SweptCosts,
        around: "SweptLayer | None" = None,
    ) -> None:
        """Take the layer's operators at both ends of their lines.

        Those ``around`` its routed experts may be known.
        """
        self._small = tuple(layer.operators(replace(key[1], micro_batch_size=1)))
        self._large = tuple(layer.operators(replace(key[1], micro_batch_size=MANY_SAMPLES)))
        if [op.name for op in self._small] != [op.name for op in self._large]:
            # Nothing is known of sizes between; no time and no bytes are a true floor.
            self._small = self._large = ()
        self._model, self._costs, self._mesh = model, costs, mesh
        self._around = around if self._small else None
        self._sums: tuple[tuple[Sweep, int], ...] = ()
        self._seconds: dict[Recompute, tuple[Floats, Floats]] = {}
        self._saved: dict[frozenset[Module], Line] = {}

    def without_experts(self) -> "SweptLayer":
        """Return the layer without what its routed experts run."""
        if not any(op.module in ROUTED for op in self._small):
            return self
        if self._around is not None:
            return self._around
        rest = copy(self)
        rest._small, rest._large = (  # noqa: SLF001 - of the same class
            tuple(op for op in operators if op.module not in ROUTED)
            for operators in (self._small, self._large)
        )
        rest._seconds, rest._saved, rest._sums = {}, {}, ()  # noqa: SLF001 - of the same class
        return rest

    def shares_partners(self) -> bool:
        """Whether a routed expert's operator runs beside one that is none."""
        routed = {op.name for op in self._small if op.module in ROUTED}
        beside = [op for op in self._small if isinstance(op, CollectivePass) and op.partner is not None]
        return any((op.name in routed) != (op.partner in routed) for op in beside)

    def routed_flops_per_sample(self) -> Flops:
        """Return the FLOP of its routed experts' products, both passes."""
        products = (op for op in weight_products(self._large) if op.module in ROUTED)
        return (
            sum(op.forward_flops * (1 + op.has_input_gradient + op.trains) for op in products) / MANY_SAMPLES
        )

    def saved(self, modules: frozenset[Module]) -> Line:
        """Return the bytes that a micro-batch leaves behind when some modules run again."""
        if modules not in self._saved:
            one, many = (
                saved_bytes(operators, recompute=modules) for operators in (self._small, self._large)
            )
            self._saved[modules] = Line(one, many)
        return self._saved[modules]

    def freed(self) -> Line:
        """Return the bytes that a micro-batch leaves behind unless the whole layer runs again."""
        everything, kept = self.saved(NOTHING), self.saved(WHOLE_LAYER)
        return Line(everything.one - kept.one, everything.many - kept.many)

    def seconds(self, mode: Recompute, count: int) -> tuple[Floats, Floats]:
        """Return forward and backward pass under a mode of recomputation, for the first ``count`` sizes."""
        known = self._seconds.get(mode)
        if known is None or len(known[0]) < count:
            known = self._seconds[mode] = self._timed(mode, count)
        return known[0][:count], known[1][:count]

    def _timed(self, mode: Recompute, count: int) -> tuple[Floats, Floats]:
        clock = self._clock(count)
        if mode != NONE:
            forward, backward = self.seconds(NONE, count)
            backward = backward + clock.again(self._small, mode).seconds
        else:
            forward, backward = (passes.seconds for passes in self._both(clock, count))
        return np.broadcast_to(forward, (count,)), np.broadcast_to(backward, (count,))

    def _both(self, clock: LayerClock[Sweep, Sweep], count: int) -> tuple[Sweep, ...]:
        """Return both passes; what surrounds routed experts is timed once for all ways to spread them."""
        if self._around is None:
            return clock.both(self._small)
        routed = clock.parts([op for op in self._small if op.module in ROUTED])
        return tuple(
            clock.launched(
                [Sweep(np.broadcast_to(known.seconds, (len(self._costs.sizes),))[:count]), *parts],
                self._small,
                phase,
                kernels=kernels + len(parts),
            )
            for phase, parts, (known, kernels) in zip(PHASES, routed, self._around.sums(), strict=True)
        )

    def sums(self) -> tuple[tuple[Sweep, int], ...]:
        """Return what all operators take together in forward and in backward, and how many kernels do it."""
        if not self._sums:
            both = self._clock(len(self._costs.sizes)).parts(self._small)
            self._sums = tuple((SWEEPS.total(parts), len(parts)) for parts in both)
        return self._sums

    def _clock(self, count: int) -> LayerClock[Sweep, Sweep]:
        swept = SweptOperators(
            costs=self._costs,
            links=self._model.links(self._mesh),
            many={op.name: op for op in self._large},
            count=count,
        )
        return self._model.clock(self._mesh, swept, swept.collective, SWEEPS)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Work:
    """Nanoseconds of both passes by micro-batch size: of all counted layers, the quickest, both ends.

    ``usual_ns`` are those of one layer of the class that most layers are of.
    """

    layers_ns: Floats
    usual_ns: Floats
    least_ns: Floats
    first_ns: Floats
    last_ns: Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class LeastWork:
    """Nanoseconds of both passes of a sample: of the whole chain, of the counted layer that takes least."""

    chain_ns: float
    layer_ns: float


def _saved(layers: Sequence[SweptLayer], mode: Recompute, sizes: NDArray[np.int64]) -> Floats:
    """Return what a micro-batch of some sizes leaves behind in layers under a mode of recomputation."""
    modules = recomputed_modules(mode)
    return sum((layer.saved(modules).over(sizes) for layer in layers), start=np.zeros(len(sizes)))


def _freed(layers: Sequence[SweptLayer], sizes: NDArray[np.int64]) -> Floats:
    """Return what the one of some layers that frees most by running again as a whole had kept."""
    return np.asarray(np.max([layer.freed().over(sizes) for layer in layers], axis=0))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SavedBytes:
    """What a micro-batch leaves behind by its size: in a layer of each class, and in each end.

    ``working`` is there besides while a layer, of whichever class needs least, runs again before its backward
    pass: what its forward pass would have kept.
    """

    classes: Mapping[int, Floats]
    first: Floats
    last: Floats
    working: Floats

    def at(self, places: NDArray[np.intp]) -> "SavedBytes":
        """Return those of the micro-batch sizes at some places."""
        return SavedBytes(
            classes={number: own[places] for number, own in self.classes.items()},
            first=self.first[places],
            last=self.last[places],
            working=self.working[places],
        )


class Family:
    """Meshes whose layers are cut alike."""

    def __init__(
        self,
        members: Mapping[Member, Sequence[SweptLayer]],
        counts: Counter[int],
        sizes: NDArray[np.int64],
    ) -> None:
        """Take the swept layers of every class, which occurs so often, and of both ends.

        ``sizes`` are all micro-batch sizes of interest, ascending.
        """
        self._sizes = sizes
        self._classes = {number: members[number] for number in counts}
        self._ends = (members["first"], members["last"])
        self._counts = counts
        self._work: dict[Modes, Work] = {}
        self._least_saved: dict[tuple[LayerWay, ...], SavedBytes] = {}

    def least_saved(self, ways: tuple[LayerWay, ...], sizes: NDArray[np.int64]) -> SavedBytes:
        """Return what a micro-batch of some sizes leaves behind on devices, the most frugal way."""
        places = np.searchsorted(self._sizes, sizes)
        if not len(self._sizes) or (self._sizes.take(places, mode="clip") != sizes).any():
            return self._saved_bytes(ways, sizes)
        if ways not in self._least_saved:
            self._least_saved[ways] = self._saved_bytes(ways, self._sizes)
        return self._least_saved[ways].at(places)

    def _saved_bytes(self, ways: tuple[LayerWay, ...], sizes: NDArray[np.int64]) -> SavedBytes:
        classes = {
            number: np.min(
                [(1 - way.activations) * _saved(layers, way.recompute, sizes) for way in ways], axis=0
            )
            for number, layers in self._classes.items()
        }
        # Ends run in no way but their own, all that they keep on the device.
        first, last = (_saved(own, NONE, sizes) for own in self._ends)
        reruns = all(way.recompute.mode is RecomputeMode.FULL for way in ways)
        freed = [_freed(layers, sizes) for layers in self._classes.values()] if reruns else []
        return SavedBytes(
            classes=classes,
            first=first,
            last=last,
            working=np.min(freed, axis=0) if freed else np.zeros(len(sizes)),
        )

    def work(self, modes: Modes, count: int, traffic: Mapping[int, Traffic]) -> Work:
        """Return the work of the first ``count`` sizes, every layer in the quickest of some modes.

        ``traffic`` says what replicas exchange beside the passes of each class of layers.
        """
        shows = any(each.shares for each in traffic.values())
        known = None if shows else self._work.get(modes)
        if known is None or len(known.layers_ns) < count:
            each = {
                number: np.min(
                    [self._nanoseconds(layers, mode, count, traffic[number].shares) for mode in modes], axis=0
                )
                for number, layers in self._classes.items()
            }
            first, last = (self._nanoseconds(ends, NONE, count, ()) for ends in self._ends)
            layers = sum((self._counts[number] * ns for number, ns in each.items()), start=np.zeros(count))
            least = np.min(list(each.values()), axis=0)
            usual, _ = self._counts.most_common(1)[0]
            known = Work(layers_ns=layers, usual_ns=each[usual], least_ns=least, first_ns=first, last_ns=last)
            if not shows:
                self._work[modes] = known
        return known

    def _nanoseconds(
        self, layers: Sequence[SweptLayer], mode: Recompute, count: int, shares: Sequence[Share]
    ) -> Floats:
        """Return layers one after the other, never above what a problem counts for them."""
        passes = [layer.seconds(mode, count) for layer in layers]
        forward = sum((each[0] for each in passes), start=np.zeros(count))
        backward = sum((each[1] for each in passes), start=np.zeros(count))
        shown = sum((share.shown(forward, backward) for share in shares), start=np.zeros(count))
        nanoseconds = (forward + backward + shown) * (NANOSECONDS_PER_SECOND * (1 - ROUNDING))
        return np.asarray(np.maximum(nanoseconds - ROUNDING_NS, 0.0))


@dataclass(kw_only=True, eq=False)
class Floors:
    """The families of one cost model's meshes, over the micro-batch sizes of a search."""

    model: CostModel
    sizes: Sequence[int]
    """All sizes of interest, ascending."""
    costs: SweptCosts = field(init=False)
    _counts: Counter[int] = field(init=False)
    _replicas: ReplicaFloors = field(init=False)
    _layers: dict[LayerKey, SweptLayer] = field(default_factory=dict, init=False)
    _families: dict[tuple[int, ...], Family] = field(default_factory=dict, init=False)
    _least: dict[tuple[int, ...], LeastWork] = field(default_factory=dict, init=False)
    _around: dict[SweptLayer, SweptLayer | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Count the layers of every class."""
        self.costs = SweptCosts(kernels=self.model.kernels, sizes=self.sizes)
        self._counts = Counter(self.model.setting.body.sequence)
        self._replicas = ReplicaFloors(model=self.model)

    def family(self, mesh: Mesh) -> Family:
        """Return the family of a mesh."""
        key = cut_key(mesh, 1)
        if key not in self._families:
            cut, members = self.model.cut(mesh, 1), self.model.members
            swept = {
                name: tuple(self._swept(layer, cut, mesh) for layer in layers)
                for name, layers in members.items()
            }
            self._families[key] = Family(swept, self._counts, np.array(self.sizes, dtype=np.int64))
        return self._families[key]

    def least_work(self, mesh: Mesh) -> LeastWork:
        """Return what one sample takes at least.

        However its experts are spread: their products run at the best rate of any, and nothing is sent to
        them.
        """
        whole = replace(mesh, expert_parallel=1, expert_tensor_parallel=1)
        key = cut_key(whole, 1)
        if key not in self._least:
            cut, members = self.model.cut(whole, 1), self.model.members
            counted = [(count, members[number]) for number, count in self._counts.items()]
            each = [
                (count, sum(self._least_of(self._swept(layer, cut, whole)) for layer in layers))
                for count, layers in (*counted, (1, members["first"]), (1, members["last"]))
            ]
            self._least[key] = LeastWork(
                chain_ns=sum(count * ns for count, ns in each),
                layer_ns=max(min(ns for _, ns in each[: len(counted)]), 0.0),
            )
        return self._least[key]

    def _least_of(self, layer: SweptLayer) -> float:
        """Return the nanoseconds of both passes of a layer per sample, at the size where they are least."""
        forward, backward = layer.without_experts().seconds(NONE, len(self.sizes))
        pace = min(self.model.setting.framework.pace.products, 1.0)
        routed = layer.routed_flops_per_sample() / self.model.kernels.best_flops_per_second() * pace
        least = float(((forward + backward) / np.array(self.sizes)).min()) + routed
        return least * (NANOSECONDS_PER_SECOND * (1 - ROUNDING)) - ROUNDING_NS

    def layer(self, layer: Layer, mesh: Mesh) -> SweptLayer:
        """Return one layer as a mesh cuts it."""
        return self._swept(layer, self.model.cut(mesh, 1), mesh)

    def _swept(self, layer: Layer, cut: Cut, mesh: Mesh) -> SweptLayer:
        _, key = self.model.layer_cut(layer, cut, mesh)
        if key not in self._layers:
            around = self._around_experts(layer, mesh) if cut.expert_parallel > 1 else None
            self._layers[key] = SweptLayer(
                layer, key, mesh, model=self.model, costs=self.costs, around=around
            )
        return self._layers[key]

    def _around_experts(self, layer: Layer, mesh: Mesh) -> SweptLayer | None:
        """Return what a layer runs besides routed experts, None where it has none or cannot be parted."""
        whole = replace(mesh, expert_parallel=1, expert_tensor_parallel=1)
        swept = self._swept(layer, self.model.cut(whole, 1), whole)
        if swept not in self._around:
            rest = swept.without_experts()
            self._around[swept] = None if rest is swept or swept.shares_partners() else rest
        return self._around[swept]

    def step_ns(
        self,
        mesh: Mesh,
        sharding: Sharding,
        modes: Modes,
        places: NDArray[np.intp],
        micro_batches: NDArray[np.int64],
        *,
        count: int,
        further: Sequence[tuple[Mesh, Sharding]] = (),
        most: NDArray[np.int64] | None = None,
        apart: bool | None = None,
    ) -> Floats:
        """Return step times that no plan undercuts on a mesh, sharded so, by micro-batch size and number.

        ``places`` are those of the sizes, among the first ``count`` of all. Stage i runs m passes of its
        layers, once those of micro-batch one are through the i stages before it, which hold at least one
        layer each (the first one perhaps only the embedding). Added up over all stages, or with less weight
        on the first, that bounds the step by the whole chain; the first stage's updates come on top where
        all layers have equal ones. ``further`` are other ways to number the ranks and to share states that
        the bound holds for too. Each stage may hold at most so many layers of the usual class; see
        `_capped_ns`. With ``apart`` gradients of weights are passes of their own, without (False) they are
        not; else they are where the framework has such schedules.
        """
        apart = self.model.setting.framework.splits_backward if apart is None else apart
        traffic = self._replicas.of(mesh, sharding, further=further)
        work = self.family(mesh).work(modes, count, traffic)
        updates = self.model.setting.num_layers * traffic[0].update_ns if len(traffic) == 1 else 0
        return self._bound_ns(
            mesh, work, places, micro_batches, mesh.pipeline_parallel, updates, most=most, apart=apart
        )

    def updated_step_ns(
        self,
        mesh: Mesh,
        sharding: Sharding,
        on_host: HostShares,
        modes: Modes,
        places: NDArray[np.intp],
        micro_batches: NDArray[np.int64],
        *,
        count: int,
    ) -> Floats:
        """Return step times that no plan undercuts whose hosts update some shares; see `step_ns`.

        Every stage has its own updates before its passes: on average that says most where hosts update.
        However ranks are numbered.
        """
        work = self.family(mesh).work(modes, count, dict.fromkeys(self._counts, NO_TRAFFIC))
        updates = self._replicas.updates_ns(mesh, sharding, on_host=on_host)
        passes = micro_batches * (work.layers_ns + work.first_ns + work.last_ns)[places]
        return np.asarray(np.floor((updates + passes) / mesh.pipeline_parallel))

    def least_step_ns(
        self,
        like: Mesh,
        places: NDArray[np.intp],
        micro_batches: NDArray[np.int64],
        stages: int | NDArray[np.int64],
        *,
        count: int,
        modes: Modes = (NONE,),
        most: NDArray[np.int64] | None = None,
    ) -> Floats:
        """Return step times that no plan undercuts on meshes of so many stages whose layers are cut alike.

        However replicas are kept equal; see `step_ns`. With ``most`` they are on one mesh.
        """
        alone = dict.fromkeys(self._counts, NO_TRAFFIC)
        work = self.family(like).work(modes, count, alone)
        apart = self.model.setting.framework.splits_backward
        return self._bound_ns(like, work, places, micro_batches, stages, 0, most=most, apart=apart)

    def _bound_ns(
        self,
        mesh: Mesh,
        work: Work,
        places: NDArray[np.intp],
        micro_batches: NDArray[np.int64],
        stages: int | NDArray[np.int64],
        updates: int,
        *,
        most: NDArray[np.int64] | None,
        apart: bool,
    ) -> Floats:
        """Return the bound of all stages' work; with ``most`` also by the layers that each may hold."""
        least = self._spread_ns(mesh, work, places, micro_batches, stages, updates, apart=apart)
        if most is None:
            return least
        return self._capped_ns(mesh, work, places, micro_batches, most, least, apart=apart)

    def _capped_ns(
        self,
        mesh: Mesh,
        work: Work,
        places: NDArray[np.intp],
        micro_batches: NDArray[np.int64],
        most: NDArray[np.int64],
        least_ns: Floats,
        *,
        apart: bool,
    ) -> Floats:
        """Return step times, at least ``least_ns``, that no plan undercuts whose stages hold whole layers.

        Of the class that most layers are of stage i holds at most ``most[i]``, by micro-batch size and
        number. It runs m passes of each, and of the end of the chain that it holds, once those of micro-batch
        one are through the i stages before it; see `step_ns`. Infinite where they cannot hold all.
        """
        count = self._counts.most_common(1)[0][1]
        usual, least, first, last = (
            ns[places] for ns in (work.usual_ns, work.least_ns, work.first_ns, work.last_ns)
        )
        # Where chunks are folded nothing is known of which stage holds an end and keeps how much.
        in_order = not (apart and self._folds)
        ends = StageEnds(
            first_ns=first * in_order,
            last_ns=last * in_order,
            between_ns=2 * self.model.between_passes(mesh).nanoseconds,
        )
        # Gradients of weights that are passes of their own are not waited for.
        waits = not apart
        constants = ends.constants(least, micro_batches, mesh.pipeline_parallel, waits=waits)
        each = micro_batches * usual
        return np.floor(capped_layers_ns(constants.T, each, most, count, least_ns) * (1 - ROUNDING))

    @property
    def _folds(self) -> bool:
        """Whether some schedule of the framework folds its chunks."""
        return any(name.folds for name in self.model.setting.framework.schedules)

    def _spread_ns(
        self,
        mesh: Mesh,
        work: Work,
        places: NDArray[np.intp],
        micro_batches: NDArray[np.int64],
        stages: int | NDArray[np.int64],
        updates: int,
        *,
        apart: bool,
    ) -> Floats:
        """Return the bound of all stages' work, and of the first one's updates.

        Where all layers are equal, stages hold whole ones of them: that bounds the step as well.
        """
        layers, least, first, last = (
            ns[places] for ns in (work.layers_ns, work.least_ns, work.first_ns, work.last_ns)
        )
        if mesh.pipeline_parallel == 1:
            return np.asarray(np.floor(updates + micro_batches * (layers + first + last)))
        between = 2 * self.model.between_passes(mesh).nanoseconds
        waits = not apart
        # Gradients of weights that are passes of their own are not waited for.
        fill = np.asarray((stages - 1) * (first + stages / 2 * between + (stages - 2) / 2 * least)) * waits
        # With this weight a layer of the first stage, updated and all, counts as much as one of any other.
        passes = micro_batches * layers
        weight = np.maximum((passes - updates * (stages - 1)) / (passes + updates), 0.0)
        others = stages - 1 + weight
        # Where chunks are folded the last one is on the first stage as well.
        folds = apart and self._folds
        fixed = micro_batches * (weight * first + (weight if folds else 1) * last + others * between)
        bound = (passes + fixed + fill) / others
        if len(self._counts) == 1:
            ends = StageEnds(first_ns=first, last_ns=last * (not folds), between_ns=between)
            each = layers / self.model.setting.num_layers
            whole = self._whole_ns(each, ends, micro_batches, stages, waits=waits)
            bound = np.maximum(bound, whole * (1 - ROUNDING))
        return np.asarray(np.floor(bound))

    def _whole_ns(
        self,
        each: Floats,
        ends: StageEnds,
        micro_batches: NDArray[np.int64],
        stages: int | NDArray[np.int64],
        *,
        waits: bool,
    ) -> Floats:
        """Return the bound of stages of whole equal layers; see `whole_layers_ns`."""
        count = self.model.setting.num_layers
        if isinstance(stages, int):
            return whole_layers_ns(
                ends.constants(each, micro_batches, stages, waits=waits), micro_batches * each, count
            )
        found = np.zeros(len(each))
        for number in np.unique(stages).tolist():
            own = np.flatnonzero(stages == number)
            some = ends.only(own)
            constants = some.constants(each[own], micro_batches[own], number, waits=waits)
            found[own] = whole_layers_ns(constants, micro_batches[own] * each[own], count)
        return found
