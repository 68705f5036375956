"""Good splits of layers by hand: where the integer program starts from, never what certifies it."""

from collections.abc import Iterator

from planner.cost.pipeline import Assignment, PipelineProblem, chunk_costs, stage_peak_bytes


def starting_assignments(problem: PipelineProblem) -> Iterator[Assignment]:
    """Yield splits worth replaying: work as even as it goes, each option tried for all layers.

    Under several options, the fastest one is used as far as each stage's memory allows.
    """
    for layers in _even_work(problem):
        if len(problem.options) == 1:
            yield tuple((count,) for count in layers)
        else:
            yield _fill_options(problem, layers)


def fits(problem: PipelineProblem, assignment: Assignment) -> bool:
    """Whether every stage stays within its limit."""
    costs = chunk_costs(problem, assignment)
    return all(
        stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes
        for stage in range(problem.shape.num_stages)
    )


def _even_work(problem: PipelineProblem) -> Iterator[tuple[int, ...]]:
    """Yield layers per chunk, stage by stage as light as the fixed parts allow.

    The order in which spare layers are dealt differs: late stages wait longest for their first
    pass, so they get fewer; early stages hold most micro-batches, so memory prefers the opposite.
    """
    stages = problem.shape.num_stages
    for order in (range(stages), range(stages - 1, -1, -1)):
        totals = _deal(problem, list(order))
        yield _over_turns(problem, totals)


def _deal(problem: PipelineProblem, order: list[int]) -> list[int]:
    """Give layers one by one to the stage with least work so far; ties go by ``order``."""
    stages = problem.shape.num_stages
    option = min(problem.options, key=lambda option: option.forward_ns + option.backward_ns)
    each = max(option.forward_ns + option.backward_ns, 1)
    totals, work = [0] * stages, [0] * stages
    for chunk in range(problem.shape.num_chunks):
        part, fewest = problem.fixed_part(chunk), problem.minimum_layers(chunk)
        totals[chunk % stages] += fewest
        work[chunk % stages] += part.forward_ns + part.backward_ns + fewest * each
    for _ in range(problem.num_layers - sum(totals)):
        lightest = min(order, key=lambda stage: work[stage])
        totals[lightest] += 1
        work[lightest] += each
    return totals


def _over_turns(problem: PipelineProblem, totals: list[int]) -> tuple[int, ...]:
    """Split each stage's layers over its chunks evenly; chunks with an end of the chain get fewer."""
    stages, turns = problem.shape.num_stages, problem.shape.virtual_stages
    layers = [0] * problem.shape.num_chunks
    for stage, total in enumerate(totals):
        own = [turn * stages + stage for turn in range(turns)]
        for chunk in own:
            layers[chunk] = problem.minimum_layers(chunk)
        loads = {chunk: _load(problem, chunk, layers[chunk]) for chunk in own}
        for _ in range(total - sum(layers[chunk] for chunk in own)):
            chunk = min(own, key=lambda chunk: (loads[chunk], -chunk))
            layers[chunk] += 1
            loads[chunk] = _load(problem, chunk, layers[chunk])
    return tuple(layers)


def _load(problem: PipelineProblem, chunk: int, layers: int) -> int:
    part, option = problem.fixed_part(chunk), problem.options[0]
    return part.forward_ns + part.backward_ns + layers * (option.forward_ns + option.backward_ns)


def _fill_options(problem: PipelineProblem, layers: tuple[int, ...]) -> Assignment:
    """Start every layer at the most frugal option, then speed up layers while their stage fits."""
    options = range(len(problem.options))
    frugal = min(options, key=lambda o: (problem.options[o].saved_bytes, problem.options[o].backward_ns))
    quick = sorted(options, key=lambda o: problem.options[o].backward_ns)
    counts = [[count if option == frugal else 0 for option in options] for count in layers]
    for stage in range(problem.shape.num_stages):
        own = range(stage, problem.shape.num_chunks, problem.shape.num_stages)
        for option in quick:
            if option == frugal:
                break
            for chunk in own:
                _speed_up(problem, counts, stage, chunk, from_option=frugal, to_option=option)
    return tuple(tuple(entry) for entry in counts)


def _speed_up(
    problem: PipelineProblem,
    counts: list[list[int]],
    stage: int,
    chunk: int,
    *,
    from_option: int,
    to_option: int,
) -> None:
    """Move as many layers of a chunk to an option as its stage's memory allows (by bisection)."""
    available = counts[chunk][from_option]
    low, high = 0, available
    while low < high:
        middle = (low + high + 1) // 2
        counts[chunk][from_option], counts[chunk][to_option] = available - middle, middle
        costs = chunk_costs(problem, tuple(tuple(entry) for entry in counts))
        if stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes:
            low = middle
        else:
            high = middle - 1
    counts[chunk][from_option], counts[chunk][to_option] = available - low, low
