"""The orders of schedules that run gradients of weights as passes of their own, where a stage would idle.

ZB-H1 and ZB-V: Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241), sections 2 and 6;
DualPipeV: DeepSeek-AI's DualPipe (arXiv 2412.19437), folded. All three in the order in which
torch.distributed.pipelining (2.13) runs them: ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble and
ScheduleDualPipeV. Where the last one pairs a forward with a backward pass, torch runs the two one after the
other, and so does this.
"""

from collections import Counter, deque

from planner.cost.pipeline_shape import BACKWARD, FORWARD, INPUT, WEIGHT, Pass, PipelineShape
from planner.strategy import ScheduleName


def zero_bubble_order(shape: PipelineShape, stage: int) -> tuple[Pass, ...]:
    """Return the passes of a stage in their order."""
    order = _Order(shape, stage)
    match shape.schedule:
        case ScheduleName.ZB_H1:
            _one_forward_one_input(order)
        case ScheduleName.ZB_V:
            _folded_zero_bubble(order)
        case _:
            _folded_dual_pipe(order)
    return tuple(step for step in order.passes if step.micro_batch < shape.num_micro_batches)


class _Order:
    """A stage's order under construction; micro-batches of each chunk follow one another in every kind."""

    def __init__(self, shape: PipelineShape, stage: int) -> None:
        self.shape, self.stage = shape, stage
        self.chunks = shape.chunks_of(stage)
        self.passes: list[Pass] = []
        self.done: Counter[tuple[int, int]] = Counter()
        self.pending: deque[int] = deque()
        """Chunks whose weights wait for a gradient, one entry for each micro-batch."""

    def add(self, kind: int, turn: int) -> None:
        """Add a chunk's next pass of a kind."""
        chunk = self.chunks[turn]
        if kind == BACKWARD:
            # It stands for both gradients; which micro-batch is next follows from those of inputs.
            self.passes.append(Pass(kind, chunk, self.done[INPUT, chunk]))
            self.done[INPUT, chunk] += 1
            self.done[WEIGHT, chunk] += 1
            return
        self.passes.append(Pass(kind, chunk, self.done[kind, chunk]))
        self.done[kind, chunk] += 1
        if kind == INPUT:
            self.pending.append(turn)

    def add_pending_weight(self) -> None:
        """Add the gradient of weights that has waited longest, if any waits."""
        if self.pending:
            self.add(WEIGHT, self.pending.popleft())


def _one_forward_one_input(order: _Order) -> None:
    """1F1B with the gradients of inputs; those of weights follow as many passes later as the stage's number.

    No stage then keeps more micro-batches than the first one does in 1F1B.
    """
    shape, stage = order.shape, order.stage
    group, turns = shape.group_size or shape.num_stages, shape.virtual_stages
    total = turns * shape.num_micro_batches
    warm_up = min((turns - 1) * group + shape.num_stages - 1 - stage, total)
    for number in range(warm_up + total):
        if number < total:
            order.add(FORWARD, number // group % turns)
        if number >= warm_up:
            order.add(INPUT, turns - 1 - (number - warm_up) // group % turns)
            if number - warm_up >= stage:
                order.add_pending_weight()
    while order.pending:
        order.add_pending_weight()


def _folded_zero_bubble(order: _Order) -> None:
    """ZB-V for forward, input and weight gradient of equal length; fewer micro-batches leave passes out."""
    stages, stage = order.shape.num_stages, order.stage
    micro_batches = max(2 * stages - 1, order.shape.num_micro_batches)
    first, second = order.chunks
    for _ in range(2 * (stages - stage) - 1):
        order.add(FORWARD, 0)
    for _ in range(stage):
        order.add(FORWARD, 1)
        order.add(FORWARD, 0)
    for _ in range(stages - stage):
        _add_all(order, 1, FORWARD, INPUT, WEIGHT)
    while order.done[FORWARD, second] < micro_batches:
        if order.done[FORWARD, first] < micro_batches:
            order.add(FORWARD, 0)
        _add_all(order, 0, INPUT, WEIGHT)
        _add_all(order, 1, FORWARD, INPUT, WEIGHT)
    for _ in range(stage):
        order.add(INPUT, 0)
        order.add(INPUT, 1)
    for _ in range(stages - stage):
        _add_all(order, 0, INPUT, WEIGHT)
    for turn, chunk in ((1, second), (0, first)):
        while order.done[WEIGHT, chunk] < micro_batches:
            order.add(WEIGHT, turn)


def _add_all(order: _Order, turn: int, *kinds: int) -> None:
    for kind in kinds:
        order.add(kind, turn)


def _folded_dual_pipe(order: _Order) -> None:
    """DualPipeV: forward passes down beside backward passes up, and the other way round."""
    stages, stage = order.shape.num_stages, order.stage
    for _ in range(2 * (stages - stage - 1)):
        order.add(FORWARD, 0)
    for _ in range(stage + 1):
        order.add(FORWARD, 0)
        order.add(FORWARD, 1)
    for _ in range(stages - stage - 1):
        order.add(INPUT, 1)
        order.add_pending_weight()
        order.add(FORWARD, 1)
    for _ in range(order.shape.num_micro_batches - 2 * stages + stage + 1):
        order.add(FORWARD, 0)
        order.add(BACKWARD, 1)
        order.add(FORWARD, 1)
        order.add(BACKWARD, 0)
    for _ in range(stages - stage - 1):
        order.add(BACKWARD, 1)
        order.add(FORWARD, 1)
        order.add(BACKWARD, 0)
    _cool_down(order)


def _cool_down(order: _Order) -> None:
    """Add what follows the last forward pass; from the middle on weights wait, so that stages above go on."""
    stages, stage = order.shape.num_stages, order.stage
    whole = (stage + 1) // 2
    for number in range(stage + 1):
        order.add(BACKWARD if number < whole + (stage % 2 == 0) else INPUT, 1)
        order.add(BACKWARD if number < whole else INPUT, 0)
    for _ in range(stages - stage - 1):
        order.add_pending_weight()
        order.add(INPUT, 0)
    while order.pending:
        order.add_pending_weight()
