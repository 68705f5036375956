"""The best plan of a small problem, found by trying everything.

Layers are numbered, every split into chunks and every option of every layer is enumerated, each plan
is played by following its passes one by one, and its memory is counted along the way. Shares nothing
with the search but the costs of layers and the order of passes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, pairwise, product

from hypothesis import strategies as st

from planner.cost.pipeline import FixedPart, LayerClass, LayerOption, PipelineProblem
from planner.cost.schedules import PassKind, stage_orders
from planner.strategy import RecomputeMode, ScheduleName
from tests.unit.planner.cost.problems import layer_classes, problems, sizes

MOST_CHOICES = 81
"""Ways to choose options for all layers, at most."""


@dataclass(frozen=True)
class Chunk:
    """One chunk of numbered layers: its fixed part, and the option and the class of each layer."""

    fixed: FixedPart
    layers: tuple[LayerOption, ...]
    classes: tuple[LayerClass, ...]


@st.composite
def small_problems(
    draw: st.DrawFn, *, schedules: Sequence[ScheduleName] = tuple(ScheduleName)
) -> PipelineProblem:
    """Draw a problem with few enough plans to try them all."""
    problem = draw(problems(max_stages=3, max_layers=5, schedules=schedules))
    while len(problem.options) ** problem.num_layers > MOST_CHOICES:
        (only,) = problem.classes
        problem = replace(problem, classes=(replace(only, options=only.options[:-1]),))
    return problem


@st.composite
def small_mixed_problems(draw: st.DrawFn) -> PipelineProblem:
    """Draw a problem whose layers are of several classes, with few enough plans to try them all."""
    problem = draw(problems(max_stages=3, max_layers=6))
    options = draw(st.integers(1, 2))
    while options**problem.num_layers > MOST_CHOICES:
        options -= 1
    size = draw(st.integers(2, 3))
    classes = [draw(layer_classes(min_options=options, max_options=options)) for _ in range(size)]
    sequence = [draw(st.integers(0, size - 1)) for _ in problem.sequence]
    return replace(problem, classes=tuple(classes), sequence=tuple(sequence))


@dataclass(frozen=True)
class Answer:
    """The least step time of all plans that fit, None when none does; the least need of memory.

    ``recomputed`` is how many layers recompute fully and how many selectively in the simplest plan of
    that time.
    """

    makespan_ns: int | None
    recomputed: tuple[int, int]
    needed_bytes: int


def best_plan(problem: PipelineProblem) -> Answer:
    """Return the least time of any plan that fits, and the least memory that any plan needs."""
    best: tuple[int, tuple[int, int]] | None = None
    need: int | None = None
    for chunks in plans(problem):
        peak = max(peak_bytes(problem, chunks, stage) for stage in range(problem.shape.num_stages))
        need = peak if need is None else min(need, peak)
        if peak <= problem.limit_bytes and fits_hosts(problem, chunks):
            found = (step_ns(problem, chunks), recomputed(chunks))
            best = found if best is None else min(best, found)
    assert need is not None
    makespan, simplest = best if best is not None else (None, (0, 0))
    return Answer(makespan_ns=makespan, recomputed=simplest, needed_bytes=need)


def recomputed(chunks: list[Chunk]) -> tuple[int, int]:
    """Return how many layers recompute fully, and how many selectively."""
    modes = [layer.recompute.mode for chunk in chunks for layer in chunk.layers]
    return modes.count(RecomputeMode.FULL), modes.count(RecomputeMode.SELECTIVE)


def plans(problem: PipelineProblem) -> Iterator[list[Chunk]]:
    """Yield every split of the numbered layers with every option for each layer.

    Plans whose chunks run the same options in another order take the same time and memory: one of
    them is enough.
    """
    count, layers = problem.shape.num_chunks, problem.num_layers
    numbers = range(len(problem.classes[0].options))
    fixed = [problem.fixed_part(i) for i in range(count)]
    for ends in combinations_with_replacement(range(layers + 1), count - 1):
        edges = (0, *ends, layers)
        if any(edges[i + 1] - edges[i] < problem.minimum_layers(i) for i in range(count)):
            continue
        for chosen in product(numbers, repeat=layers):
            parts = [chosen[edges[i] : edges[i + 1]] for i in range(count)]
            if problem.is_uniform and not all(
                part[i] <= part[i + 1] for part in parts for i in range(len(part) - 1)
            ):
                continue
            kinds = [problem.classes[number] for number in problem.sequence]
            yield [
                Chunk(
                    part,
                    tuple(kinds[i].options[chosen[i]] for i in range(start, end)),
                    tuple(kinds[start:end]),
                )
                for part, (start, end) in zip(fixed, pairwise(edges), strict=True)
            ]


@st.composite
def with_hosts(draw: st.DrawFn, problem: PipelineProblem) -> PipelineProblem:
    """Draw the same problem with states and activations on hosts that stages share, small enough to bind."""
    stages = problem.shape.num_stages
    classes = tuple(
        replace(
            layers,
            host_bytes=draw(sizes),
            options=tuple(replace(option, host_saved_bytes=draw(sizes)) for option in layers.options),
        )
        for layers in problem.classes
    )
    node = st.lists(st.tuples(st.integers(0, stages - 1), st.integers(1, 3)), min_size=1, max_size=stages)
    nodes = draw(st.lists(node.map(dict), min_size=1, max_size=2))
    return replace(
        problem,
        classes=classes,
        first=replace(problem.first, host_bytes=draw(sizes)),
        last=replace(problem.last, host_bytes=draw(sizes)),
        hosts=tuple(tuple(each.items()) for each in nodes),
        host_limit_bytes=draw(st.integers(50, 1500)),
    )


def fits_hosts(problem: PipelineProblem, chunks: list[Chunk]) -> bool:
    """Whether the stages of every node fit its host together, each chunk's activations at their most."""
    held = [_host_bytes(problem, chunks, stage) for stage in range(problem.shape.num_stages)]
    return all(
        sum(devices * held[stage] for stage, devices in node) <= problem.host_limit_bytes
        for node in problem.hosts
    )


def _host_bytes(problem: PipelineProblem, chunks: list[Chunk], stage: int) -> int:
    numbers = problem.shape.own(stage)
    own = chunks[numbers]
    states = sum(chunk.fixed.host_bytes + sum(layers.host_bytes for layers in chunk.classes) for chunk in own)
    alive, most = [0] * len(own), [0] * len(own)
    for step in stage_orders(problem.shape)[stage]:
        turn = step.chunk // problem.shape.num_stages
        alive[turn] += 0 if step.backward else 1
        most[turn] = max(most[turn], alive[turn])
        alive[turn] -= 1 if step.backward else 0
    saved = [sum(layer.host_saved_bytes for layer in chunk.layers) for chunk in own]
    return states + sum(count * size for count, size in zip(most, saved, strict=True))


def peak_bytes(problem: PipelineProblem, chunks: list[Chunk], stage: int) -> int:
    """Return the most bytes held on a stage, passes followed one by one."""
    held = problem.base_bytes
    for chunk in chunks[problem.shape.own(stage)]:
        held += chunk.fixed.static_bytes + sum(layers.static_bytes for layers in chunk.classes)
    peak = held
    for step in stage_orders(problem.shape)[stage]:
        chunk = chunks[step.chunk]
        saved = chunk.fixed.saved_bytes + sum(layer.saved_bytes for layer in chunk.layers)
        waiting = chunk.fixed.held_bytes + sum(layer.held_bytes for layer in chunk.layers)
        if step.kind == PassKind.FORWARD:
            held += saved
            peak = max(peak, held)
            continue
        working = max([chunk.fixed.working_bytes, *(layer.working_bytes for layer in chunk.layers)])
        peak = max(peak, held + working)
        if step.kind == PassKind.INPUT:
            held += waiting - saved
            peak = max(peak, held + working)
        else:
            held -= saved if step.kind == PassKind.BACKWARD else waiting
    return peak


def step_ns(problem: PipelineProblem, chunks: list[Chunk]) -> int:
    """Return the time of a step by letting every stage run its next pass when its input is there."""
    shape, p, count = problem.shape, problem.shape.num_stages, len(chunks)
    orders = [list(order) for order in stage_orders(problem.shape)]
    sums: list[list[int]] = [
        [sum(values) for values in zip(*_durations(chunk), strict=True)] for chunk in chunks
    ]
    own = [shape.chunks_of(s) for s in range(p)]
    clock = [problem.barrier_ns + sum(sums[c][2] for c in own[s]) for s in range(p)]
    gathered = [0] * count
    for s in range(p):
        for c in own[s]:
            gathered[c] = clock[s] + sum(sums[other][3] for other in own[s] if other <= c)
    if not problem.gather_overlaps:
        clock = [gathered[own[s][-1]] for s in range(p)]
    # A chunk's output and its gradient, by direction; its last pass of all.
    ends: dict[tuple[bool, int, int], int] = {}
    lasts: dict[int, tuple[int, int]] = {}
    waiting = [0] * p
    while any(waiting[s] < len(orders[s]) for s in range(p)):
        for s in range(p):
            if waiting[s] == len(orders[s]):
                continue
            step = orders[s][waiting[s]]
            source = step.chunk + (1 if step.backward else -1)
            begin = clock[s]
            if 0 <= source < count and step.kind != PassKind.WEIGHT:
                fed = ends.get((step.backward, source, step.micro_batch))
                if fed is None:
                    continue
                way = 0 if problem.transfer_blocks else way_ns(problem, source, own[s])
                begin = max(begin, fed + way)
            forward, backward, weight = sums[step.chunk][0], sums[step.chunk][1], sums[step.chunk][5]
            end = begin + (forward, backward, backward - weight, weight)[step.kind]
            if problem.transfer_blocks and step.kind != PassKind.WEIGHT:
                end += way_ns(problem, step.chunk + (-1 if step.backward else 1), own[s])
            first_use = step.kind == PassKind.FORWARD and step.micro_batch == 0
            if first_use and problem.gather_overlaps and sums[step.chunk][3]:
                end = max(end, gathered[step.chunk] + problem.gather_bucket_ns)
            if step.kind != PassKind.WEIGHT:
                ends[step.backward, step.chunk, step.micro_batch] = end
            lasts[step.chunk], clock[s] = (begin, end), end
            waiting[s] += 1
    finished = [max(clock[s], reduced_ns(problem, sums, lasts, own[s], done_ns=clock[s])) for s in range(p)]
    makespan: int = max(*finished, max(finished[0], finished[-1]) + problem.tied_ns)
    return makespan


def way_ns(problem: PipelineProblem, chunk: int, here: range) -> int:
    """Return an activation's way between a stage's chunks and another chunk, 0 where there is none."""
    nowhere = not 0 <= chunk < problem.shape.num_chunks
    return 0 if nowhere or chunk in here or problem.shape.num_stages == 1 else problem.transfer_ns


def reduced_ns(
    problem: PipelineProblem,
    sums: list[list[int]],
    lasts: dict[int, tuple[int, int]],
    chunks: range,
    *,
    done_ns: int,
) -> int:
    """Return when a stage's gradients are reduced; ``lasts`` are starts and ends of chunks' last passes."""
    reduced = 0 if problem.reduce_overlaps else done_ns
    for c in reversed(chunks):
        if problem.reduce_overlaps and sums[c][4]:
            start, done = lasts[c]
            reduced = max(reduced, start) + sums[c][4]
            reduced = max(reduced, done + problem.reduce_bucket_ns)
        else:
            reduced += sums[c][4]
    return reduced


def _durations(chunk: Chunk) -> list[tuple[int, int, int, int, int, int]]:
    part = chunk.fixed
    fixed = (
        part.forward_ns,
        part.backward_ns,
        part.optimizer_ns,
        part.gather_ns,
        part.reduce_ns,
        part.weight_ns,
    )
    layers = zip(chunk.layers, chunk.classes, strict=True)
    return [
        fixed,
        *(
            (one.forward_ns, one.backward_ns, of.optimizer_ns, of.gather_ns, of.reduce_ns, one.weight_ns)
            for one, of in layers
        ),
    ]
