"""Every way to give layers to stages that a certificate describes, by plain enumeration."""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, product

from planner.cost.pipeline import Assignment, PipelineProblem
from planner.strategy import RecomputeMode


def every_assignment(problem: PipelineProblem) -> Iterator[Assignment]:
    """Give the layers to stages and options in every way that the certificate describes."""
    if not problem.is_uniform:
        return every_split_in_order(problem)
    plain = problem.shape.virtual_stages == 1 and not problem.shape.schedule.splits_backward
    return every_split(problem) if plain else every_even_split(problem)


def every_even_split(problem: PipelineProblem) -> Iterator[Assignment]:
    """Give every stage some layers, evenly over its chunks, the first ones recomputed most."""
    shape = problem.shape
    frugal_first = sorted(
        range(len(problem.options)), key=lambda number: (problem.options[number].saved_bytes, -number)
    )
    for totals in product(range(problem.num_layers + 1), repeat=shape.num_stages):
        own = [shape.chunks_of(stage) for stage in range(shape.num_stages)]
        fewest = [sum(problem.minimum_layers(chunk) for chunk in chunks) for chunks in own]
        if sum(totals) != problem.num_layers or any(n < f for n, f in zip(totals, fewest, strict=True)):
            continue
        stages = [
            list(every_run(spread(problem, list(chunks), total), frugal_first))
            for chunks, total in zip(own, totals, strict=True)
        ]
        for chosen in product(*stages):
            yield tuple(
                chosen[shape.stage_of(chunk)][shape.turn_of(chunk)] for chunk in range(shape.num_chunks)
            )


def spread(problem: PipelineProblem, chunks: list[int], total: int) -> list[int]:
    """Spread layers as the certificate says; a chunk's fixed part counts as the layers that it weighs."""
    quickest = max(problem.options, key=lambda option: (option.saved_bytes, -problem.options.index(option)))
    each = quickest.forward_ns + quickest.backward_ns
    parts = [problem.fixed_part(chunk) for chunk in chunks]
    weights = [round((part.forward_ns + part.backward_ns) / each) for part in parts]
    layers = [problem.minimum_layers(chunk) for chunk in chunks]
    while sum(layers) < total:
        loads = [count + weight for count, weight in zip(layers, weights, strict=True)]
        layers[max(turn for turn, load in enumerate(loads) if load == min(loads))] += 1
    return layers


def every_run(layers: list[int], frugal_first: list[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Number a stage's layers and choose where each option begins."""
    total, options = sum(layers), len(frugal_first)
    for cuts in product(range(total + 1), repeat=options - 1):
        if list(cuts) != sorted(cuts):
            continue
        modes = [frugal_first[sum(number >= cut for cut in cuts)] for number in range(total)]
        starts = [sum(layers[:turn]) for turn in range(len(layers))]
        yield tuple(
            tuple(modes[start : start + size].count(option) for option in range(options))
            for start, size in zip(starts, layers, strict=True)
        )


def every_split(problem: PipelineProblem) -> Iterator[Assignment]:
    """Give the layers one by one to chunks and options, in every way."""
    chunks, options = problem.shape.num_chunks, len(problem.options)

    def fill(chunk: int, left: int) -> Iterator[tuple[tuple[int, ...], ...]]:
        if chunk == chunks:
            if left == 0:
                yield ()
            return
        for counts in product(range(left + 1), repeat=options):
            if problem.minimum_layers(chunk) <= sum(counts) <= left:
                for rest in fill(chunk + 1, left - sum(counts)):
                    yield (counts, *rest)

    yield from fill(0, problem.num_layers)


def every_split_in_order(problem: PipelineProblem) -> Iterator[Assignment]:
    """Cut a chain of several classes into chunks, in its order; several per stage are nearly even."""
    total, count = problem.num_layers, problem.shape.num_chunks
    for ends in product(range(total + 1), repeat=count - 1):
        edges = (0, *ends, total)
        sizes = [end - start for start, end in pairwise(edges)]
        if any(size < problem.minimum_layers(chunk) for chunk, size in enumerate(sizes)):
            continue
        if problem.shape.virtual_stages > 1 and (
            max(sizes) > -(-total // max(count - 2, 1)) or min(sizes[1:-1], default=total) < total // count
        ):
            continue
        chunks = [list(every_mix(problem, problem.sequence[start:end])) for start, end in pairwise(edges)]
        yield from product(*chunks)


def every_mix(problem: PipelineProblem, layers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Give each of some layers, named by class, an option: any, or in order for several chunks per stage."""
    held = [layers.count(number) for number in range(len(problem.classes))]
    if problem.shape.virtual_stages > 1:
        yield from by_what_they_free(problem, held)
        return
    options = len(problem.classes[0].options)
    ways = [[mix for mix in product(range(total + 1), repeat=options) if sum(mix) == total] for total in held]
    for chosen in product(*ways):
        yield tuple(chain.from_iterable(chosen))


def by_what_they_free(problem: PipelineProblem, held: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """From every layer run the quickest way to every one the most frugal way, one more at a time.

    Those change first that free most bytes for the time that they lose.
    """
    order = {mode: number for number, mode in enumerate(RecomputeMode)}
    ladder = []
    for layers in problem.classes:
        taken = [
            (option.forward_ns + option.backward_ns, order[option.recompute.mode], number)
            for number, option in enumerate(layers.options)
        ]
        quick = min(taken)[2]
        frugal = min(
            (option.saved_bytes, *taken[number][::2]) for number, option in enumerate(layers.options)
        )[2]
        lost = taken[frugal][0] - taken[quick][0]
        freed = layers.options[quick].saved_bytes - layers.options[frugal].saved_bytes
        ladder.append((quick, frugal, lost / max(freed, 1)))
    changes = sorted(
        (ladder[number][2], number)
        for number, count in enumerate(held)
        for _ in range(count)
        if ladder[number][0] != ladder[number][1]
    )
    for changed in range(len(changes) + 1):
        frugal_ones = [number for _, number in changes[:changed]]
        mix = []
        for number, (count, layers) in enumerate(zip(held, problem.classes, strict=True)):
            quick, frugal, _ = ladder[number]
            own = [0] * len(layers.options)
            own[quick] += count - frugal_ones.count(number)
            own[frugal] += frugal_ones.count(number)
            mix += own
        yield tuple(mix)
