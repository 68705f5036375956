"""Step times and memory that no plan of a mesh undercuts, for all its micro-batch sizes at once.

Meshes whose layers are cut alike make a family: its layers are timed once, as sweeps.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.ground import Member, cut_key
from planner.cost.layer import LayerClock, recomputed_modules
from planner.cost.model import ROUNDING, CostModel, LayerKey
from planner.cost.sweep import MANY_SAMPLES, SWEEPS, Floats, Line, Sweep, SweptCosts, SweptOperators
from planner.strategy import Mesh, Recompute
from planner.units import NANOSECONDS_PER_SECOND
from planner.workload.layers import Cut, Layer
from planner.workload.operators import Module
from planner.workload.recomputation import WHOLE_LAYER, saved_bytes

NONE: Final = Recompute()
ROUNDING_NS: Final = 2
"""Most by which rounding a layer's passes one by one exceeds rounding sums of them."""

Modes = tuple[Recompute, ...]
"""The modes of recomputation that layers choose from."""


class SweptLayer:
    """One layer cut in one way: what it takes and what it keeps, by micro-batch size."""

    def __init__(
        self, layer: Layer, key: LayerKey, mesh: Mesh, *, model: CostModel, costs: SweptCosts
    ) -> None:
        """Take the layer's operators at both ends of their lines."""
        cut = key[1]
        self._small = tuple(layer.operators(replace(cut, micro_batch_size=1)))
        self._large = tuple(layer.operators(replace(cut, micro_batch_size=MANY_SAMPLES)))
        if [op.name for op in self._small] != [op.name for op in self._large]:
            # Nothing is known of sizes between; no time and no bytes are a true floor.
            self._small = self._large = ()
        self._model, self._costs, self._mesh = model, costs, mesh
        self._seconds: dict[Recompute, Floats] = {}
        self._saved: dict[frozenset[Module], Line] = {}

    def saved(self, modules: frozenset[Module]) -> Line:
        """Return the bytes that a micro-batch leaves behind when some modules run again."""
        if modules not in self._saved:
            one, many = (
                saved_bytes(operators, recompute=modules) for operators in (self._small, self._large)
            )
            self._saved[modules] = Line(one, many)
        return self._saved[modules]

    def seconds(self, mode: Recompute, count: int) -> Floats:
        """Return both passes under a mode of recomputation, for the first ``count`` sizes."""
        known = self._seconds.get(mode)
        if known is None or len(known) < count:
            known = self._seconds[mode] = self._timed(mode, count)
        return known[:count]

    def _timed(self, mode: Recompute, count: int) -> Floats:
        clock = self._clock(count)
        seconds = clock.both(self._small).seconds if mode == NONE else self.seconds(NONE, count)
        if mode != NONE:
            seconds = seconds + clock.again(self._small, mode).seconds
        return np.broadcast_to(seconds, (count,))

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
    """Nanoseconds by micro-batch size: of the whole chain, and of the quickest counted layer."""

    chain_ns: Floats
    least_ns: Floats


class Family:
    """Meshes whose layers are cut alike."""

    def __init__(self, members: Mapping[Member, Sequence[SweptLayer]], counts: Counter[int]) -> None:
        """Take the swept layers of every class, which occurs so often, and of both ends."""
        self._classes = {number: members[number] for number in counts}
        self._ends = (*members["first"], *members["last"])
        self._counts = counts
        self._work: dict[Modes, Work] = {}
        self._saved: dict[Recompute, Counter[Line]] = {}

    def saved(self, mode: Recompute, sizes: NDArray[np.int64]) -> Floats:
        """Return what a micro-batch of some sizes leaves behind in the whole chain, its ends recomputed."""
        if mode not in self._saved:
            modules = recomputed_modules(mode)
            lines = Counter(layer.saved(WHOLE_LAYER) for layer in self._ends)
            for number, layers in self._classes.items():
                for layer in layers:
                    lines[layer.saved(modules)] += self._counts[number]
            self._saved[mode] = lines
        return sum(
            (times * line.over(sizes) for line, times in self._saved[mode].items()),
            start=np.zeros(len(sizes)),
        )

    def work(self, modes: Modes, count: int) -> Work:
        """Return the work of the first ``count`` sizes, every layer in the quickest of some modes."""
        known = self._work.get(modes)
        if known is None or len(known.chain_ns) < count:
            each = {
                number: np.min([self._nanoseconds(layers, mode, count) for mode in modes], axis=0)
                for number, layers in self._classes.items()
            }
            chain = self._nanoseconds(self._ends, NONE, count)
            chain = sum((self._counts[number] * ns for number, ns in each.items()), start=chain)
            known = self._work[modes] = Work(chain_ns=chain, least_ns=np.min(list(each.values()), axis=0))
        return Work(chain_ns=known.chain_ns[:count], least_ns=known.least_ns[:count])

    def _nanoseconds(self, layers: Sequence[SweptLayer], mode: Recompute, count: int) -> Floats:
        """Return layers one after the other, never above what a problem counts for them."""
        seconds = sum((layer.seconds(mode, count) for layer in layers), start=np.zeros(count))
        nanoseconds = seconds * (NANOSECONDS_PER_SECOND * (1 - ROUNDING)) - ROUNDING_NS * max(len(layers), 1)
        return np.maximum(nanoseconds, 0.0)


@dataclass(kw_only=True, eq=False)
class Floors:
    """The families of one cost model's meshes, over the micro-batch sizes of a search."""

    model: CostModel
    sizes: Sequence[int]
    """All sizes of interest, ascending."""
    _costs: SweptCosts = field(init=False)
    _counts: Counter[int] = field(init=False)
    _layers: dict[LayerKey, SweptLayer] = field(default_factory=dict, init=False)
    _families: dict[tuple[int, ...], Family] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Count the layers of every class."""
        self._costs = SweptCosts(kernels=self.model.kernels, sizes=self.sizes)
        self._counts = Counter(self.model.setting.body.sequence)

    def family(self, mesh: Mesh) -> Family:
        """Return the family of a mesh."""
        key = cut_key(mesh, 1)
        if key not in self._families:
            cut, members = self.model.cut(mesh, 1), self.model.members
            swept = {
                name: tuple(self._swept(layer, cut, mesh) for layer in layers)
                for name, layers in members.items()
            }
            self._families[key] = Family(swept, self._counts)
        return self._families[key]

    def layer(self, layer: Layer, mesh: Mesh) -> SweptLayer:
        """Return one layer as a mesh cuts it."""
        return self._swept(layer, self.model.cut(mesh, 1), mesh)

    def _swept(self, layer: Layer, cut: Cut, mesh: Mesh) -> SweptLayer:
        _, key = self.model.layer_cut(layer, cut, mesh)
        if key not in self._layers:
            self._layers[key] = SweptLayer(layer, key, mesh, model=self.model, costs=self._costs)
        return self._layers[key]

    def step_ns(
        self,
        mesh: Mesh,
        modes: Modes,
        places: NDArray[np.intp],
        micro_batches: NDArray[np.int64],
        *,
        count: int,
    ) -> Floats:
        """Return step times that no plan undercuts on a mesh, by micro-batch size and number.

        ``places`` are those of the sizes, among the first ``count`` of all. Work is spread over stages as
        evenly as fractions allow and no replica is waited for. Stage i also waits for the passes of the i
        stages before it, which hold at least one layer each (the first one perhaps only the embedding);
        where gradients of weights are passes of their own nobody need wait for those.
        """
        stages = mesh.pipeline_parallel
        work = self.family(mesh).work(modes, count)
        between = 2 * stages * self.model.between_passes(mesh).nanoseconds
        earlier = 0 if self.model.setting.framework.splits_backward else (stages - 1) * (stages - 2) // 2
        waits = work.least_ns[places] * earlier
        steps: Floats = np.floor((micro_batches * (work.chain_ns[places] + between) + waits) / stages)
        return steps
