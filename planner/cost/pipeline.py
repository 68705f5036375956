"""One mesh as the search sees it: integer durations and bytes of layers, chunks and stages.

Durations are whole nanoseconds and sizes whole bytes, so that the integer programs, the replay and
the oracle compute exactly the same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.schedules import Moment, PipelineShape, memory_moments
from planner.strategy import Recompute


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerOption:
    """One way to run one of the counted layers.

    ``saved_bytes`` per micro-batch stay until backward, ``host_saved_bytes`` on the host; ``working_bytes``
    live only while the layer's backward pass (or its recomputation) runs. ``weight_ns`` is the part of
    ``backward_ns`` that makes gradients of weights; where that is a pass of its own, ``held_bytes`` per
    micro-batch stay from the gradient of the inputs until then.
    """

    recompute: Recompute
    forward_ns: int
    backward_ns: int
    saved_bytes: int
    working_bytes: int
    activations: float = 0.0
    """Share of what the layer keeps that is on the host."""
    host_saved_bytes: int = 0
    weight_ns: int = 0
    held_bytes: int = 0

    @property
    def inputs_ns(self) -> int:
        """The part of the backward pass that makes gradients of inputs."""
        return self.backward_ns - self.weight_ns


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerClass:
    """Counted layers of equal cost: the ways to run one, and what each holds and does once a step.

    ``static_bytes`` are parameters, gradients and optimizer states, ``host_bytes`` those on the host.
    """

    options: tuple[LayerOption, ...]
    static_bytes: int
    optimizer_ns: int
    gather_ns: int
    reduce_ns: int
    host_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedPart:
    """What a chunk carries besides counted layers: the embedding, or the norm, head and loss."""

    forward_ns: int = 0
    backward_ns: int = 0
    saved_bytes: int = 0
    working_bytes: int = 0
    static_bytes: int = 0
    optimizer_ns: int = 0
    gather_ns: int = 0
    reduce_ns: int = 0
    host_bytes: int = 0
    weight_ns: int = 0
    held_bytes: int = 0

    def __add__(self, other: "FixedPart") -> "FixedPart":
        """Return both parts in one chunk; working memory is reused, the rest adds up."""
        return FixedPart(
            forward_ns=self.forward_ns + other.forward_ns,
            backward_ns=self.backward_ns + other.backward_ns,
            saved_bytes=self.saved_bytes + other.saved_bytes,
            working_bytes=max(self.working_bytes, other.working_bytes),
            static_bytes=self.static_bytes + other.static_bytes,
            optimizer_ns=self.optimizer_ns + other.optimizer_ns,
            gather_ns=self.gather_ns + other.gather_ns,
            reduce_ns=self.reduce_ns + other.reduce_ns,
            host_bytes=self.host_bytes + other.host_bytes,
            weight_ns=self.weight_ns + other.weight_ns,
            held_bytes=self.held_bytes + other.held_bytes,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineProblem:
    """Everything that decides one mesh's step time and memory, but the layers of each chunk.

    A step runs from one global barrier to the next (the gradient norm is needed everywhere before
    any update): optimizer, gather of updated parameters, the passes in their order, reduction of
    gradients. ``sequence`` names the class of each counted layer in the order of execution; every class
    has as many options. ``every`` rides on each chunk, ``first`` and ``last`` on the first and the last
    one.

    Where the schedule makes gradients of weights in passes of their own, ``backward_ns`` of layers and fixed
    parts is what both passes take together, and ``weight_ns`` the second one's part.

    ``transfer_ns`` is one activation's way to the next stage, ``boundaries_ns`` that from each stage to
    the one after it (from the last to the first) where they differ; a blocking transfer occupies its
    sender. ``gather_bucket_ns`` and ``reduce_bucket_ns`` are the parts of a gather before its first
    use, and of a reduction after the last gradient, that nothing can hide. ``barrier_ns`` is paid
    once by every stage (gradient norm, step overhead). ``tied_ns`` joins the first and last stage at
    the end (a tied embedding's gradients). ``base_bytes`` is what every device holds besides;
    ``limit_bytes`` what it may hold in all.
    """

    shape: PipelineShape
    classes: tuple[LayerClass, ...]
    sequence: tuple[int, ...]
    every: FixedPart
    first: FixedPart
    last: FixedPart
    transfer_ns: int
    transfer_blocks: bool
    gather_overlaps: bool
    reduce_overlaps: bool
    gather_bucket_ns: int
    reduce_bucket_ns: int
    barrier_ns: int
    tied_ns: int
    base_bytes: int
    limit_bytes: int
    empty_ends: bool
    """Whether a chunk that holds the embedding or the head may hold no counted layer."""
    boundaries_ns: tuple[int, ...] = ()
    hosts: tuple[tuple[tuple[int, int], ...], ...] = ()
    """For each kind of node the stages on it, with how many devices of each; empty where hosts never bind."""
    host_limit_bytes: int = 0
    """What the stages of a node may keep on its host together."""
    hosts_overflow: bool = False
    """Whether all hosts together are too small for the states that all stages keep there."""

    @property
    def num_layers(self) -> int:
        """Counted layers in all."""
        return len(self.sequence)

    @property
    def is_uniform(self) -> bool:
        """Whether all counted layers cost the same: then they need no order."""
        return len(self.classes) == 1

    @property
    def options(self) -> tuple[LayerOption, ...]:
        """The options of the one class of a uniform problem."""
        return self._only.options

    @property
    def static_bytes(self) -> int:
        """What one layer of a uniform problem holds."""
        return self._only.static_bytes

    @property
    def optimizer_ns(self) -> int:
        """The update of one layer of a uniform problem."""
        return self._only.optimizer_ns

    @property
    def gather_ns(self) -> int:
        """The gather of one layer of a uniform problem."""
        return self._only.gather_ns

    @property
    def reduce_ns(self) -> int:
        """The reduction of one layer of a uniform problem."""
        return self._only.reduce_ns

    @property
    def least_gather_ns(self) -> int:
        """The gather of the layer that gathers least."""
        return min(layers.gather_ns for layers in self.classes)

    @property
    def least_reduce_ns(self) -> int:
        """The reduction of the layer that reduces least."""
        return min(layers.reduce_ns for layers in self.classes)

    @property
    def _only(self) -> LayerClass:
        (only,) = self.classes
        return only

    def fixed_part(self, chunk: int) -> FixedPart:
        """Return what a chunk carries besides counted layers."""
        part = self.every
        if chunk == 0:
            part = part + self.first
        if chunk == self.shape.num_chunks - 1:
            part = part + self.last
        return part

    def minimum_layers(self, chunk: int) -> int:
        """Return the fewest counted layers that a chunk may hold."""
        is_end = chunk in {0, self.shape.num_chunks - 1}
        return 0 if is_end and self.empty_ends else 1


Assignment = tuple[tuple[int, ...], ...]
"""How many layers each chunk runs how: ``assignment[chunk]`` lists the options of the first class, then
those of the next one. Chunks hold layers in the order of the sequence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkCosts:
    """Durations and bytes of one chunk under an assignment."""

    forward_ns: int
    backward_ns: int
    saved_bytes: int
    working_bytes: int
    static_bytes: int
    optimizer_ns: int
    gather_ns: int
    reduce_ns: int
    weight_ns: int = 0
    held_bytes: int = 0


def chunk_costs(problem: PipelineProblem, assignment: Assignment) -> tuple[ChunkCosts, ...]:
    """Return the costs of every chunk, in chunk order."""
    return tuple(costs_of_chunk(problem, chunk, counts) for chunk, counts in enumerate(assignment))


def costs_of_chunk(problem: PipelineProblem, chunk: int, counts: Sequence[int]) -> ChunkCosts:
    """Return the costs of one chunk whose layers run as ``counts`` says."""
    part = problem.fixed_part(chunk)
    ways = [(layers, option) for layers in problem.classes for option in layers.options]
    used = [(count, layers, option) for count, (layers, option) in zip(counts, ways, strict=True) if count]
    weight_ns = held_bytes = 0
    if problem.shape.schedule.splits_backward:
        weight_ns = part.weight_ns + sum(count * option.weight_ns for count, _, option in used)
        held_bytes = part.held_bytes + sum(count * option.held_bytes for count, _, option in used)
    return ChunkCosts(
        forward_ns=part.forward_ns + sum(count * option.forward_ns for count, _, option in used),
        backward_ns=part.backward_ns + sum(count * option.backward_ns for count, _, option in used),
        saved_bytes=part.saved_bytes + sum(count * option.saved_bytes for count, _, option in used),
        working_bytes=max([part.working_bytes, *(option.working_bytes for _, _, option in used)]),
        static_bytes=part.static_bytes + sum(count * layers.static_bytes for count, layers, _ in used),
        optimizer_ns=part.optimizer_ns + sum(count * layers.optimizer_ns for count, layers, _ in used),
        gather_ns=part.gather_ns + sum(count * layers.gather_ns for count, layers, _ in used),
        reduce_ns=part.reduce_ns + sum(count * layers.reduce_ns for count, layers, _ in used),
        weight_ns=weight_ns,
        held_bytes=held_bytes,
    )


def stage_peak_bytes(problem: PipelineProblem, costs: Sequence[ChunkCosts], stage: int) -> int:
    """Return the most bytes that a device of a stage holds at any moment of a step."""
    own = costs[problem.shape.own(stage)]
    static = problem.base_bytes + sum(chunk.static_bytes for chunk in own)
    return static + max(moment_bytes(moment, own) for moment in memory_moments(problem.shape, stage))


def moment_bytes(moment: Moment, own: Sequence[ChunkCosts]) -> int:
    """Return what a stage's own chunks hold at a moment besides their states."""
    held = sum(count * chunk.saved_bytes for count, chunk in zip(moment.saved, own, strict=True))
    if moment.waiting:
        held += sum(count * chunk.held_bytes for count, chunk in zip(moment.waiting, own, strict=True))
    return held + (own[moment.turn].working_bytes if moment.backward else 0)
