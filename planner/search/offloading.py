"""Ways to keep states and activations on the host, as a search tries them.

They come in chains: each way of a chain leaves more room on the device than the one before it, and is never
quicker. So a chain is solved as one: as quick as its first way and as small as its last. Only where that has
a plan worth looking at it is halved. Spaces look at hosts where no plan fits without them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.cost.model import CostModel
from planner.cost.pipeline import Assignment, PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.steady import play_step
from planner.expansion import host_shares
from planner.framework import Grain
from planner.limits import STATES
from planner.offload_limits import HostShare, OffloadLimits
from planner.search.hosts import fits_hosts
from planner.search.master import Solution
from planner.search.space import OFFLOADED, Space
from planner.strategy import (
    NOTHING_ON_HOST,
    Batch,
    HostShares,
    LayerWay,
    Layout,
    Mesh,
    Recompute,
    RecomputeMode,
    Schedule,
    Sharding,
)

FORBIDDEN: Final = "offload"
TENTHS: Final = tuple(number / 10 for number in range(1, 11))
"""Shares of optimizer states that a search tries where a framework takes any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What tells variants apart: a way to shard, the modes that layers choose from, what is on the host."""

    sharding: Sharding
    recompute: tuple[Recompute, ...]
    on_host: HostShares = NOTHING_ON_HOST
    activations: tuple[float, ...] = ()

    @property
    def ways(self) -> tuple[LayerWay, ...]:
        """The ways to run a layer."""
        shares = self.activations or (0.0,) * len(self.recompute)
        return tuple(
            LayerWay(recompute=mode, activations=share)
            for mode, share in zip(self.recompute, shares, strict=True)
        )

    def on(self, mesh: Mesh, batch: Batch) -> Layout:
        """Return the layout of a mesh and batch with this choice; one chunk a stage."""
        return Layout(
            mesh=mesh,
            batch=batch,
            schedule=Schedule(),
            sharding=self.sharding,
            recompute=self.recompute,
            on_host=self.on_host,
            activations=self.activations,
        )


Chain = tuple[Choice, ...]


class Offloading:
    """The chains of a space; none where offload is forbidden, fixed, or nothing is known of the hosts."""

    def __init__(self, space: Space) -> None:
        self._space = space
        limits = space.setting.framework.limits.offload
        self._states: tuple[tuple[HostShares, ...], ...] = ()
        self._activations = False
        if is_searched(space):
            self._states = tuple(state_chains(limits))
            # Which layer stays behind where one has to is no part of a count of layers.
            self._activations = limits.activations is not HostShare.NONE and not limits.keeps_a_layer

    def beside(self, choice: Choice, mesh: Mesh, batch: Batch) -> tuple[Chain, ...]:
        """Return the legal chains that keep more on the host than a choice that keeps nothing there."""
        found = []
        for chain in self._chains(choice):
            legal = tuple(other for other in chain if self._space.runs(other.on(mesh, batch), step=OFFLOADED))
            if legal:
                found.append(legal)
        return tuple(found)

    def _chains(self, choice: Choice) -> Iterator[Chain]:
        for states in self._states:
            yield tuple(replace(choice, on_host=shares) for shares in states)
        for wider in self._with_activations(choice):
            yield (wider,)
            for states in self._states:
                yield tuple(replace(wider, on_host=shares) for shares in states)

    def _with_activations(self, choice: Choice) -> Iterator[Choice]:
        """Yield the choice with what some modes keep on the host too, where the framework can put it.

        A choice of one set of modules for all layers keeps everything on the device.
        """
        if not self._activations or self._space.chooses_once(choice.recompute):
            return
        framework = self._space.setting.framework
        limits = framework.limits.offload
        moved = [mode for mode in choice.recompute if mode.mode in limits.activations_beside]
        if moved and (limits.activations_alike or framework.recompute_grain is Grain.JOB):
            yield replace(choice, activations=tuple(float(mode in moved) for mode in choice.recompute))
        elif moved:
            kept = [mode for mode in moved if mode.mode is not RecomputeMode.FULL]
            yield _widened(choice.recompute, kept or moved, choice)
            whole = [mode for mode in choice.recompute if mode.mode is RecomputeMode.FULL]
            if kept and whole:
                # Layers that are recomputed as a whole keep their inputs on one side, all of them.
                yield _widened([mode for mode in choice.recompute if mode not in whole], moved, choice)


def within_hosts(model: CostModel, like: Layout, chain: Chain) -> Chain:
    """Return those ways of a chain whose states all hosts together can take: later ones leave more there."""
    if not any(way.on_host.is_any for way in chain):
        return chain
    while chain and model.problem(replace(like, on_host=chain[-1].on_host)).hosts_overflow:
        chain = chain[:-1]
    return chain


def chained_problem(model: CostModel, like: Layout, chain: Chain) -> PipelineProblem:
    """Return the problem of a chain under the schedule of a layout: no slower and no larger than any way."""
    ends = [
        model.problem(replace(like, on_host=choice.on_host))
        for choice in dict.fromkeys((chain[0], chain[-1]))
    ]
    return ends[0] if len(ends) == 1 else relaxed(*ends)


def first_that_fits(
    model: CostModel, like: Layout, chain: Chain, assignment: Assignment
) -> tuple[Layout, PipelineProblem, Solution] | None:
    """Return the first way of a chain that holds an assignment, and how long that takes; None for no way."""
    for choice in chain:
        layout = replace(like, on_host=choice.on_host)
        problem = model.problem(layout)
        costs = chunk_costs(problem, assignment)
        stages = range(problem.shape.num_stages)
        fits = all(stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes for stage in stages)
        if fits and fits_hosts(problem, assignment):
            makespan_ns = play_step(problem, costs).makespan_ns
            return layout, problem, Solution(assignment=assignment, makespan_ns=makespan_ns, lower_bound_ns=0)
    return None


def relaxed(first: PipelineProblem, last: PipelineProblem) -> PipelineProblem:
    """Return a problem as quick as that of a chain's first way and as small as that of its last.

    No way between them is quicker or smaller; what hosts hold is left out.
    """
    return replace(
        first,
        classes=tuple(
            replace(
                layers,
                static_bytes=min(layers.static_bytes, other.static_bytes),
                host_bytes=0,
                options=tuple(replace(option, host_saved_bytes=0) for option in layers.options),
            )
            for layers, other in zip(first.classes, last.classes, strict=True)
        ),
        first=replace(first.first, static_bytes=min(first.first.static_bytes, last.first.static_bytes)),
        last=replace(first.last, static_bytes=min(first.last.static_bytes, last.last.static_bytes)),
        base_bytes=min(first.base_bytes, last.base_bytes),
        hosts=(),
    )


def _widened(here: Sequence[Recompute], moved: Sequence[Recompute], choice: Choice) -> Choice:
    """Return a choice of some modes with what they keep on the device, and of some with that on the host."""
    return replace(
        choice,
        recompute=(*here, *moved),
        activations=(*(0.0 for _ in here), *(1.0 for _ in moved)),
    )


def is_searched(space: Space) -> bool:
    """Whether a search decides what is on the host."""
    has_hosts = all(group.host is not None for group in space.setting.cluster.node_groups)
    decided = "offload" in space.constraints.fixed or FORBIDDEN in space.constraints.forbid
    multiplies = bool(space.setting.job.optimizer.newton_schulz_steps)
    limits = space.setting.framework.limits.offload
    has_any = (limits.has_states and not multiplies) or limits.activations is not HostShare.NONE
    return space.looks_at_hosts and not decided and has_hosts and has_any


def most_on_host(space: Space) -> HostShares:
    """Return shares of states that no plan of a space exceeds."""
    if not is_searched(space) and "offload" not in space.constraints.fixed:
        return NOTHING_ON_HOST
    return HostShares(optimizer=1.0, parameters=1.0, gradients=1.0)


def state_chains(limits: OffloadLimits) -> Iterator[tuple[HostShares, ...]]:
    """Yield the shares of states that are tried: optimizer states bit by bit, then parameters as well.

    Parameters on the host spare an update their copy, so they are a chain of their own.
    """
    if limits.optimizer is HostShare.NONE:
        return
    whole = limits.shares(1.0)
    if limits.together or limits.optimizer is HostShare.WHOLE:
        yield (whole,)
    else:
        yield tuple(limits.shares(share) for share in TENTHS)
    if limits.parameters is not HostShare.NONE and whole.parameters < 1:
        yield (replace(whole, parameters=1.0),)


def fixed_choice(space: Space, choice: Choice) -> Choice:
    """Return a choice with what the caller fixed of the host, all layers alike."""
    given = space.fixed("offload")
    if not isinstance(given, dict):
        return choice
    shares = host_shares(given, space.setting.framework)
    activations = float(given.get("activations", 0.0))
    return replace(
        choice,
        on_host=shares,
        activations=(activations,) * len(choice.recompute) if activations else (),
    )


def tried_words(limits: OffloadLimits) -> Sequence[str]:
    """Return in words which shares of which states a search tries."""
    words = []
    for chain in state_chains(limits):
        ends = dict.fromkeys((chain[0].optimizer, chain[-1].optimizer))
        optimizer = " to ".join(f"{share:g}" for share in ends) + (" by tenths" if len(ends) > 1 else "")
        beside = [state for state in STATES[:1] if getattr(chain[0], state)]
        words.append(f"optimizer {optimizer}" + (f" with {beside[0]}" if beside else ""))
    if limits.activations is not HostShare.NONE and not limits.keeps_a_layer:
        words.append("activations by layer, all or none of each")
    return words
