"""Best first over layouts: whatever has the lowest bound is looked at next, until bounds meet the best.

Nodes are opened only when no cheaper one is left: a family of meshes (bound: layers without experts), a mesh
(bound: its layers and the fill of its pipeline, then the floors of its variants in batch, sharding and
recomputation), a variant (bound: all its costs, any
schedule), a layout (bound: its schedule's paths), which the master program solves.
"""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from planner.cost.ground import pipeline_shape
from planner.cost.model import CostModel
from planner.cost.pipeline import PipelineProblem
from planner.expansion import zero_sharding
from planner.job import SolverLimits
from planner.search.bounds import apart_bound_ns, lower_bound_ns, rules_out, spread_bound_ns
from planner.search.capacity import even_chunks_fit
from planner.search.even_fill import EvenFill, fills_evenly, rules_out_evenly
from planner.search.evening import evened
from planner.search.fewer_devices import fewer_degrees
from planner.search.frontier import Content, Frontier, Node, Variant
from planner.search.legal_meshes import Keeps
from planner.search.master import Excluded, Solution, solve
from planner.search.mesh_floors import (
    FamilyNode,
    MeshFloor,
    MeshNode,
    MeshVariant,
    TimedMesh,
    floors_of,
    sizes_of,
)
from planner.search.meshes import by_mesh, can_split_freely, scheduled, schedules, space_size
from planner.search.module_sets import halves
from planner.search.offloading import (
    Chain,
    chained_problem,
    first_that_fits,
    most_on_host,
    within_hosts,
)
from planner.search.outcome import Candidate, ProgressReport, SearchOutcome, simplest, simplest_assignment
from planner.search.placings import Placing, undominated
from planner.search.point_master import solve_evenly
from planner.search.ranking import layout_rank, scheme_rank
from planner.search.sending import sent
from planner.search.solver import WorkLimits
from planner.search.space import WHOLE, Space
from planner.search.span_master import solve_in_order
from planner.search.usual_split import play_usual_split
from planner.setting import divisors
from planner.strategy import Batch, HostShares, Layout, Mesh, Schedule, ScheduleName, Sharding

WORK_LEVELS: Final = (0.01, 0.2, 2.0, 60.0)
"""Work, in the solver's own seconds, that a layout gets in its first, second and further tries.

Most layouts end in milliseconds. The few that don't are put off until all others are done: by then a
better plan is often known that rules them out at once.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SideSearch:
    """What a search beside another one is spared; its outcome then proves nothing of the whole space."""

    ceiling_ns: int | None = None
    """Plans that take longer are of no use."""
    most_tries: int = len(WORK_LEVELS)
    """How often a hard layout is tried."""
    fewer_devices: bool = False
    """Whether plans that leave devices idle count."""


NEARLY_ALL: Final = 16
"""One in so many devices is left idle at a time, until there is a plan to compare with."""
PRICING_SHARE: Final = 0.5
"""Share of the time limit in which meshes are timed before there is any plan."""


class _Search:
    """One search: the open nodes and the best so far."""

    def __init__(self, space: Space, model: CostModel, limits: SolverLimits, side: SideSearch) -> None:
        self._space, self._model, self._limits, self._side = space, model, limits, side
        self._frontier = Frontier()
        self._splits_freely = can_split_freely(space.setting.framework)
        self._unproven_ns: list[int] = []
        self._started = time.monotonic()
        self._deadline = self._started + limits.time_limit_seconds
        meshes = list(by_mesh(space))
        size = space_size(meshes)
        self.outcome = SearchOutcome(total=size.layouts, plans=size.plans)
        self._floors = floors_of(meshes, model)
        self._families = self._floors.families(meshes)[::-1]
        self._fewest_devices = space.num_devices
        """All meshes on at least so many devices were, or are, looked at."""
        self._schedules: dict[tuple[int, int], tuple[Schedule, ...]] = {}
        self._ideal_ns: dict[int, int] = {}
        self._covered: dict[int, bool] = {}
        self._shared: dict[int, tuple[tuple[Sharding, HostShares], ...]] = {}

    def run(self, report: ProgressReport | None) -> SearchOutcome:
        while time.monotonic() <= self._deadline and self._goes_on():
            bound = min((self._lowest_ns(), *self._frontier.waiting_ns, *self._unseen_ns()))
            self.outcome.lower_bound_ns = max(self.outcome.lower_bound_ns, bound)
            if self._prices_next():
                for mesh in self._floors.of(self._families.pop(), is_late=self._is_settled):
                    self._push(mesh.bound_ns, mesh)
            else:
                self._open_node(self._frontier.pop())
            if report is not None:
                report(self.outcome, len(self._frontier) + len(self._families))
        self._conclude()
        self.outcome.solve_seconds = time.monotonic() - self._started
        return self.outcome

    def _goes_on(self) -> bool:
        """Whether anything is left to open, on fewer devices too once all others are done."""
        while not self._has_work():
            if self._fewest_devices == 1 or not self._side.fewer_devices:
                return False
            self._widen()
        return True

    def _widen(self) -> None:
        """Look at plans on fewer devices that may be faster; where no plan is known, on nearly as many."""
        best, most = self.outcome.best, self._fewest_devices - 1
        nearly = most - most // NEARLY_ALL
        least = nearly if best is None else max(self._model.ideal_ns(1) // best.makespan_ns, 1)
        self._fewest_devices = least if best is None else 1
        degrees = fewer_degrees(self._space, least=least, most=most)
        meshes = list(by_mesh(self._space, degrees, keeps=Keeps(plain=self._is_quick, spread=self._may_hold)))
        size = space_size(meshes)
        self.outcome.total += size.layouts
        self.outcome.plans += size.plans
        if not self._floors.covers(sizes_of(meshes)):
            self._floors = floors_of(meshes, self._model)
            self._covered.clear()
        self._families = self._floors.families(meshes)[::-1]

    def _is_quick(self, ways: tuple[Mesh, ...]) -> bool:
        """Whether work alone leaves a mesh faster than the best, however its experts are spread."""
        mesh = ways[0]
        samples = self._space.setting.job.global_batch_size // mesh.data_parallel
        if samples not in self._covered:
            self._covered[samples] = self._floors.covers(divisors(samples))
        if not self._covered[samples]:
            return True
        return not self._is_settled(self._floors.work_ns(ways))

    def _may_hold(self, ways: tuple[Mesh, ...]) -> bool:
        """Whether a mesh may hold the states of a model."""
        mesh = ways[0]
        if mesh.replicas not in self._shared:
            self._shared[mesh.replicas] = tuple(self._ways_to_share(mesh.replicas))
        return self._floors.memory.may_hold_states(mesh, self._shared[mesh.replicas])

    def _ways_to_share(self, replicas: int) -> Iterator[tuple[Sharding, HostShares]]:
        """Yield the ways to share and to send states, those that mostly leave most room first."""
        framework, on_host = self._space.setting.framework, most_on_host(self._space)
        for stage in sorted(framework.zero_stages, reverse=True):
            usual = zero_sharding(stage, replicas=replicas, framework=framework)
            yield from ((sharding, on_host) for sharding in sent(self._space, usual))

    def _unseen_ns(self) -> tuple[int, ...]:
        """Return a bound on plans on fewer devices while none is looked at: ideal work on as many."""
        if self._fewest_devices == 1 or not self._side.fewer_devices:
            return ()
        if self._fewest_devices not in self._ideal_ns:
            self._ideal_ns[self._fewest_devices] = self._model.ideal_ns(self._fewest_devices - 1)
        return (self._ideal_ns[self._fewest_devices],)

    def _lowest_ns(self) -> int:
        """Return the lowest bound of all that is open."""
        return min((*self._frontier.lowest_ns, *_bounds(self._families[-1:])))

    def _prices_next(self) -> bool:
        """Whether the meshes of a family are to be timed next: in part of the time, lest there be no plan."""
        if not self._families or not self._frontier:
            return bool(self._families)
        spent = time.monotonic() - self._started
        if self.outcome.best is None and spent > PRICING_SHARE * self._limits.time_limit_seconds:
            return False
        return self._families[-1].bound_ns <= min(self._frontier.lowest_ns)

    def _push_mesh(self, floor: MeshFloor) -> None:
        """Open a mesh's variant with the lowest bound before the others."""
        if floor.variants:
            self._push(floor.variants[-1].bound_ns, floor)

    def _has_work(self) -> bool:
        """Whether anything is left to open; what was put off comes back when nothing else is."""
        is_open = bool(self._frontier or self._families) and not self._is_settled(self._lowest_ns())
        if is_open and not self._frontier.is_late(self._lowest_ns()):
            return True
        return self._frontier.bring_back(self._push) and self._has_work()

    def _is_settled(self, bound_ns: int) -> bool:
        """Whether no plan with at least this bound is worth a look; exact ties are."""
        best = self.outcome.best
        if self._side.ceiling_ns is not None and bound_ns > self._side.ceiling_ns:
            return True
        if best is None:
            return False
        if self._limits.relative_gap > 0:
            return best.makespan_ns <= bound_ns * (1 + self._limits.relative_gap)
        return best.makespan_ns < bound_ns

    def _conclude(self) -> None:
        """Say how the search ended: with everything ruled out, or with what is left as the bound."""
        best = self.outcome.best
        if best is not None:
            limits = WorkLimits(wall_clock_seconds=self._deadline - time.monotonic())
            best = self.outcome.best = simplest(best, limits=limits)
        if best is not None and can_split_freely(self._space.setting.framework):
            split = evened(best.problem, best.assignment, makespan_ns=best.makespan_ns)
            best = self.outcome.best = replace(best, assignment=split)
        left = [*self._unproven_ns, *self._frontier.left_ns, *_bounds(self._families[-1:])]
        left = [bound for bound in (*left, *self._unseen_ns()) if best is None or bound < best.makespan_ns]
        self.outcome.finished = not left or (best is not None and self._is_settled(min(left)))
        if best is not None:
            left.append(best.makespan_ns)
        self.outcome.lower_bound_ns = min(left, default=self.outcome.lower_bound_ns)

    def _push(self, bound_ns: int, content: Content) -> None:
        if not self._is_settled(bound_ns):
            self._frontier.push(bound_ns, content)

    def _open_node(self, node: Node) -> None:
        match node.content:
            case TimedMesh() as timed:
                held = self._floors.held(timed, is_late=self._is_settled)
                if held is not None:
                    self._push(max(node.bound_ns, held.bound_ns), held)
            case MeshNode() as mesh:
                self._push_mesh(self._floors.floor(mesh, is_late=self._is_settled))
            case MeshFloor() as floor:
                self._open_chain(node.bound_ns, floor, floor.variants.pop())
                self._push_mesh(floor)
            case Variant(is_leaf=True) as leaf:
                self._solve(node, leaf)
            case Variant() as variant if variant.ways:
                self._split(node.bound_ns, variant)
            case Variant() as variant:
                self._open_schedules(node.bound_ns, variant)

    def _open_chain(self, least_ns: int, floor: MeshFloor, variant: MeshVariant) -> None:
        """Open those ways of a chain that may fit: together, but for backward passes in two parts."""
        memory, mesh, batch, chain = self._floors.memory, floor.mesh, variant.batch, variant.chain
        if variant.apart and not self._runs_apart(mesh, batch):
            return
        chain = tuple(way for way in chain if way is chain[-1] or memory.may_hold(way.on(mesh, batch)))
        chain = within_hosts(self._model, chain[0].on(mesh, batch), chain)
        if chain and self._space.chooses_once(chain[0].recompute):
            modes = memory.modes_that_may_hold(chain[-1].on(mesh, batch))
            chain = tuple(replace(way, recompute=modes) for way in chain) if modes else ()
        if not chain:
            return
        placings = self._placings_of(floor, chain)
        if not variant.apart:
            self._open_variant(
                least_ns, chain[0].on(mesh, batch), ways=floor.ways, chain=chain, placings=placings
            )
            return
        for way in chain:
            self._open_apart(least_ns, way.on(mesh, batch), ways=floor.ways, chain=(way,), placings=placings)

    def _placings_of(self, floor: MeshFloor, chain: Chain) -> tuple[Placing, ...]:
        """Return the ways to place the states of a mesh; none where there is but one."""
        found = tuple(Placing(rank_order=order, sharding=chain[0].sharding) for order in floor.orders)
        return found if len(found) > 1 else ()

    def _open_variant(
        self,
        least_ns: int,
        layout: Layout,
        *,
        chain: Chain,
        ways: tuple[Mesh, ...] = (),
        placings: tuple[Placing, ...] = (),
    ) -> None:
        """Open a layout without a schedule, how attention is split and ranks are placed being open.

        A chain is as quick as its first way and as frugal as its last.
        """
        problem = self._priced(layout, chain=chain, placings=placings)
        if ways:
            problem = self._floors.any_scheme.problem(problem, ways, layout.batch.micro_batch_size)
        bound = spread_bound_ns(problem)
        if bound is not None:
            variant = Variant(layout=layout, problem=problem, ways=ways, chain=chain, placings=placings)
            self._push(max(bound, least_ns), variant)

    def _priced(self, layout: Layout, *, chain: Chain, placings: tuple[Placing, ...]) -> PipelineProblem:
        """Return the problem of a layout in any way of a chain, or placed in any way."""
        if placings:
            return self._model.problem(layout, others=_others(layout, placings))
        return chained_problem(self._model, layout, chain)

    def _runs_apart(self, mesh: Mesh, batch: Batch) -> bool:
        """Whether some schedule of a mesh and batch makes gradients of weights apart."""
        if mesh.pipeline_parallel == 1 or not self._space.setting.framework.splits_backward:
            return False
        return any(schedule.name.splits_backward for schedule in self._schedules_of(mesh, batch))

    def _schedules_of(self, mesh: Mesh, batch: Batch) -> tuple[Schedule, ...]:
        """Return the schedules of a mesh and batch, which are judged by stages and micro-batches alone."""
        key = (mesh.pipeline_parallel, batch.num_micro_batches)
        if key not in self._schedules:
            self._schedules[key] = tuple(schedules(self._space, mesh, batch))
        return self._schedules[key]

    def _open_apart(
        self,
        least_ns: int,
        layout: Layout,
        *,
        chain: Chain,
        ways: tuple[Mesh, ...] = (),
        placings: tuple[Placing, ...] = (),
    ) -> None:
        """Open a layout for the schedules that make gradients of weights apart, with the modes they allow.

        Priced with both ends of the chain on one stage, which costs least, and one chunk per stage.
        """
        plain = scheduled(self._space, layout, Schedule(name=ScheduleName.ZB_H1))
        if plain is None:
            return
        folded = replace(plain, schedule=Schedule(name=ScheduleName.ZB_V, virtual_stages=2))
        priced = self._model.problem(folded, others=_others(folded, placings))
        problem = replace(priced, shape=pipeline_shape(plain))
        if ways:
            problem = self._floors.any_scheme.problem(problem, ways, layout.batch.micro_batch_size)
        bound = apart_bound_ns(problem)
        if bound is not None:
            variant = Variant(
                layout=plain, problem=problem, ways=ways, apart=True, chain=chain, placings=placings
            )
            self._push(max(bound, least_ns), variant)

    def _split(self, least_ns: int, variant: Variant) -> None:
        """Open a layout with every way to split attention that may win."""
        ways = sorted(variant.ways, key=scheme_rank)
        for mesh in self._floors.any_scheme.undominated(ways, variant.layout.batch.micro_batch_size):
            opened = self._open_apart if variant.apart else self._open_variant
            layout = replace(variant.layout, mesh=mesh)
            opened(least_ns, layout, chain=variant.chain, placings=variant.placings)

    def _open_schedules(self, least_ns: int, variant: Variant) -> None:
        mesh, batch, framework = variant.layout.mesh, variant.layout.batch, self._space.setting.framework
        for schedule in self._schedules_of(mesh, batch):
            if schedule.name.splits_backward != variant.apart:
                continue
            layout = replace(variant.layout, schedule=schedule)
            if not self._space.runs(layout, step=WHOLE):
                continue
            if variant.apart:
                problem = self._model.problem(layout, others=_others(layout, variant.placings))
            elif self._model.shares_cores:
                # More chunks leave less time in which others find a core idle.
                problem = self._priced(layout, chain=variant.chain, placings=variant.placings)
            else:
                problem = replace(
                    variant.problem,
                    shape=pipeline_shape(layout),
                    every=self._model.every(layout),
                    transfer_blocks=framework.transfer_blocks(schedule.name),
                )
            bound = lower_bound_ns(problem)
            leaf = Variant(
                layout=layout,
                problem=problem,
                apart=variant.apart,
                is_leaf=True,
                chain=variant.chain,
                placings=variant.placings,
            )
            if bound is not None and (not leaf.says_little or even_chunks_fit(problem)):
                self._push(max(bound, least_ns), leaf)

    def _open_placings(self, leaf: Variant, least_ns: int) -> None:
        """Open a layout in every way to place its ranks and states that may win."""
        layouts = [placing.on(leaf.layout) for placing in leaf.placings]
        placed = [(layout, self._model.problem(layout)) for layout in layouts]
        for layout, problem in undominated(placed):
            bound = lower_bound_ns(problem)
            if bound is not None:
                chain = tuple(replace(way, sharding=layout.sharding) for way in leaf.chain)
                one = Variant(layout=layout, problem=problem, apart=leaf.apart, is_leaf=True, chain=chain)
                self._push(max(bound, least_ns), one)

    def _open_sets(self, leaf: Variant, least_ns: int) -> None:
        """Open a layout with the quicker and with the slower half of its sets of modules."""
        for layout, problem, chain in halves(self._model, leaf.layout, leaf.problem, leaf.chain):
            bound = lower_bound_ns(problem)
            half = Variant(layout=layout, problem=problem, is_leaf=True, chain=chain)
            if bound is not None and (not half.says_little or even_chunks_fit(problem)):
                self._push(max(bound, least_ns), half)

    def _open_halves(self, leaf: Variant, least_ns: int) -> None:
        """Open both halves of a chain whose problem has a plan that is quick enough."""
        middle = (len(leaf.chain) + 1) // 2
        for chain in (leaf.chain[:middle], leaf.chain[middle:]):
            layout = replace(leaf.layout, on_host=chain[0].on_host)
            problem = chained_problem(self._model, layout, chain)
            bound = lower_bound_ns(problem)
            if bound is not None:
                half = Variant(layout=layout, problem=problem, is_leaf=True, chain=chain)
                self._push(max(bound, least_ns), half)

    def _solve(self, node: Node, leaf: Variant) -> None:
        cutoff = self._cutoff_ns(leaf.layout)
        if cutoff is not None and self._rules_out(leaf.problem, cutoff):
            return
        if leaf.placings:
            self._open_placings(leaf, node.bound_ns)
            return
        if self._space.chooses_once(leaf.layout.recompute):
            self._open_sets(leaf, node.bound_ns)
            return
        if not leaf.is_raised and fills_evenly(leaf.problem) and self._splits_freely:
            self._raise(node, leaf)
            return
        limits = WorkLimits(
            deterministic_seconds=WORK_LEVELS[leaf.tries],
            wall_clock_seconds=max(self._deadline - time.monotonic(), 0.0),
        )
        solved = self._solved(leaf.layout, leaf.problem, cutoff, limits)
        self.outcome.solved += leaf.tries == 0
        if isinstance(solved, Solution) and len(leaf.chain) > 1:
            assignment = simplest_assignment(leaf.problem, solved, limits=limits)
            found = first_that_fits(self._model, leaf.layout, leaf.chain, assignment)
            if found is not None:
                self._keep(*found)
            self._open_halves(leaf, solved.lower_bound_ns)
            return
        if isinstance(solved, Solution):
            self._keep(leaf.layout, leaf.problem, solved)
        if solved.lower_bound_ns is not None:
            self._put_off_unless_settled(node, leaf, solved.lower_bound_ns)

    def _raise(self, node: Node, leaf: Variant) -> None:
        """Open a leaf again by what filling its stages takes, which costs a part of solving it."""
        leaf.is_raised = True
        least = EvenFill(leaf.problem).least_ns(node.bound_ns)
        if least is not None:
            self._push(least, leaf)

    def _rules_out(self, problem: PipelineProblem, cutoff_ns: int) -> bool:
        """Whether no plan of a layout takes at most so long, as far as whole layers of stages show it."""
        if _solver(problem) is solve_evenly and self._splits_freely:
            return rules_out_evenly(problem, cutoff_ns)
        return rules_out(problem, cutoff_ns)

    def _solved(
        self, layout: Layout, problem: PipelineProblem, cutoff_ns: int | None, limits: WorkLimits
    ) -> Solution | Excluded:
        """Return a layout's best plan, or its only one where the framework spreads the layers itself."""
        if problem.shape.num_stages > 1 and not can_split_freely(self._space.setting.framework):
            return play_usual_split(problem, layout, self._space.setting, cutoff_ns=cutoff_ns)
        return _solver(problem)(problem, cutoff_ns=cutoff_ns, limits=limits)

    def _cutoff_ns(self, layout: Layout) -> int | None:
        """Return the longest step with which a layout would still be preferred to the best."""
        best = self.outcome.best
        if best is None:
            return self._side.ceiling_ns
        wins_ties = layout_rank(layout) < layout_rank(best.layout)
        return best.makespan_ns if wins_ties else best.makespan_ns - 1

    def _put_off_unless_settled(self, node: Node, leaf: Variant, bound_ns: int) -> None:
        """Keep a layout for another try where its bound leaves room below the best."""
        best = self.outcome.best
        if best is not None and bound_ns >= best.makespan_ns:
            return
        node.bound_ns = max(node.bound_ns, bound_ns)
        leaf.tries += 1
        if leaf.tries < self._side.most_tries:
            self._frontier.put_off(node)
        else:
            self._unproven_ns.append(node.bound_ns)

    def _keep(self, layout: Layout, problem: PipelineProblem, solution: Solution) -> None:
        candidate = Candidate(
            layout=layout,
            problem=problem,
            assignment=solution.assignment,
            makespan_ns=solution.makespan_ns,
            paths=solution.paths,
        )
        best = self.outcome.best
        if best is None or candidate.rank < best.rank:
            self.outcome.best, candidate = candidate, best or candidate
        if candidate is not self.outcome.best:
            self.outcome.runners_up.append(candidate)


def _others(layout: Layout, placings: Sequence[Placing]) -> list[Layout]:
    """Return a layout in every way to place it but its own."""
    return [placing.on(layout) for placing in placings[1:]]


def _bounds(families: Sequence[FamilyNode]) -> list[int]:
    return [node.bound_ns for node in families]


def _solver(problem: PipelineProblem) -> "_Solver":
    """Return what solves a layout: equal layers need no order, several chunks are filled evenly.

    So are those whose gradients of weights come later: one chunk's even filling is any.
    """
    if not problem.is_uniform:
        return solve_in_order
    is_plain = problem.shape.virtual_stages == 1 and not problem.shape.schedule.splits_backward
    return solve if is_plain else solve_evenly


class _Solver(Protocol):
    def __call__(
        self, problem: PipelineProblem, *, cutoff_ns: int | None, limits: WorkLimits | None
    ) -> Solution | Excluded: ...


WHOLE_SEARCH: Final = SideSearch(fewer_devices=True)


def search(
    space: Space,
    model: CostModel,
    limits: SolverLimits,
    *,
    report: ProgressReport | None = None,
    side: SideSearch = WHOLE_SEARCH,
) -> SearchOutcome:
    """Return the best plan of a space and the proof: stops when no open bound is below the best.

    The clock ends it early (``finished`` is False then); what it has found and the bound stay valid.
    """
    with _without_collector():
        return _Search(space, model, limits, side).run(report)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the collector of reference cycles off: costs are many small objects that refer in no circles.

    It would walk all of them again and again, a tenth to a third of a search's time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
