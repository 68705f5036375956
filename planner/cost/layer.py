"""One layer on one device: the time of its passes, what it saves, what it holds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol

from planner.cost.host_times import HostTimes, operator_counts
from planner.cost.ledger import Amount, Ledger, Timed, Timed_co
from planner.cost.tally import AXIS_CAUSES, CONTENTION_FRACTION, Cause, Family
from planner.framework import Framework
from planner.strategy import Recompute, RecomputeMode
from planner.units import Bytes, Flops, Seconds
from planner.workload.layers import Cut, Layer
from planner.workload.operators import (
    AttentionCore,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Phase,
)
from planner.workload.recomputation import NOTHING as NO_MODULES
from planner.workload.recomputation import WHOLE_LAYER, kept_tensors, recomputed_operators, saved_bytes
from planner.workload.tensor_parallel import gathers_a_saved_input
from planner.workload.weights import (
    Holdings,
    holdings,
    step_flops_per_sample,
    weight_products,
    weights_of,
)

EAGER_ALREADY: Final = frozenset({Module.HEAD, Module.TRACED})
"""Where passes are counted kernel by kernel, as an eager program runs them: the loss, a traced module."""

WEIGHT_GRADIENT_BYTES: Final = 4
"""One FP32 gradient of the largest product's weights lives until it is added to the accumulated one.

Without it the peaks of truncated Llama models on B200 come out short by 1.7 GiB (70B) and 6.5 GiB (405B).
"""


ALIGNED_ELEMENTS: Final = 8
"""Elements of two bytes in the 16 bytes that tensor cores load at once."""


class KernelClock(Protocol[Timed_co]):
    """Times kernels on one device."""

    def matrix_product(self, op: MatrixProduct, *, phase: Phase) -> Timed_co:
        """Return the time of a product in forward or as one of its gradients."""
        ...

    def attention(self, op: AttentionCore, *, phase: Phase) -> Timed_co:
        """Return the time of a fused attention core, forward or backward."""
        ...

    def memory_pass(self, op: MemoryPass, *, phase: Phase) -> Timed_co:
        """Return the time of a memory-bound pass, forward or backward."""
        ...


class CollectiveClock(Protocol[Timed_co]):
    """Times the collectives of one layer's axis group."""

    def __call__(self, op: CollectivePass) -> Timed_co:
        """Return the time of a collective over the ranks of its axis."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerPasses(Generic[Amount]):
    """One layer cut for one device: its operators and both passes, before anything is recomputed."""

    cut: Cut
    operators: Sequence[Operator]
    forward: Amount
    backward: Amount
    holdings: Holdings


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCost(Generic[Amount]):
    """What one layer costs one device for one micro-batch under one mode of recomputation.

    ``backward`` holds the recomputation that precedes it. ``logits_bytes`` is the part of
    ``saved_bytes`` that belongs to logits and loss.
    """

    forward: Amount
    backward: Amount
    saved_bytes: Bytes
    working_bytes: Bytes
    logits_bytes: Bytes
    holdings: Holdings


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerClock(Generic[Timed, Amount]):
    """Times layers: kernels of a device, collectives of a mesh, habits of a framework."""

    kernels: KernelClock[Timed]
    collectives: CollectiveClock[Timed]
    ledger: Ledger[Timed, Amount]
    """How times are added up: with their causes, or for many micro-batch sizes at once."""
    framework: Framework
    attention_pace: float = 1.0
    """Time of the framework's attention on this device over that of the fastest kernels."""
    added_launch_seconds: Seconds = 0.0
    """Host time that each launch takes on this mesh beyond the framework's usual one."""
    crossing_seconds: Seconds = 0.0
    """What each tensor-parallel collective takes on this mesh beyond its links' time."""
    host: HostTimes | None = None
    """What the host was measured to take on this mesh; None where nobody did: the framework's pace holds."""
    contention_fraction: float = CONTENTION_FRACTION

    def passes(self, layer: Layer, cut: Cut) -> LayerPasses[Amount]:
        """Return both passes of a layer cut this way."""
        operators = layer.operators(cut)
        return LayerPasses(
            cut=cut,
            operators=operators,
            forward=self._forward(operators),
            backward=self._backward(operators),
            holdings=holdings(layer, cut),
        )

    def both(self, operators: Sequence[Operator]) -> tuple[Amount, Amount]:
        """Return the forward and the backward pass of a layer's operators."""
        return self._forward(operators), self._backward(operators)

    def cost(self, passes: LayerPasses[Amount], recompute: Recompute) -> LayerCost[Amount]:
        """Return the cost of a layer under one mode of recomputation."""
        operators, modules = passes.operators, recomputed_modules(recompute)
        gathered, all_gathered = (self._gathered_bytes(passes, those) for those in (modules, NO_MODULES))
        kept = saved_bytes(operators, recompute=modules) + gathered
        everything = saved_bytes(operators, recompute=NO_MODULES) + all_gathered
        logits = [
            tensor.size_bytes
            for tensor in kept_tensors(operators, recompute=modules)
            if tensor.made_by is Module.HEAD
        ]
        return LayerCost(
            forward=self._wrapped(passes.forward, recompute, backward=False),
            backward=self._wrapped(
                self.ledger.total((self.again(operators, recompute), passes.backward)),
                recompute,
                backward=True,
            ),
            saved_bytes=kept,
            working_bytes=everything - kept + _working_bytes(operators, passes.cut),
            logits_bytes=sum(logits),
            holdings=passes.holdings,
        )

    def _gathered_bytes(self, passes: LayerPasses[Amount], recomputed: frozenset[Module]) -> Bytes:
        """Return what gathered inputs take beyond their shards, where the framework saves them gathered."""
        if not self.framework.saves_gathered_inputs:
            return 0.0
        beyond = 1 - 1 / passes.cut.tensor_parallel
        return sum(
            op.payload_bytes * beyond
            for op in passes.operators
            if gathers_a_saved_input(op) and op.module not in recomputed
        )

    def parts(self, operators: Sequence[Operator]) -> tuple[list[Amount], list[Amount]]:
        """Return what operators run and send one by one, in forward and in backward."""
        trained = [op for op in operators if not op.forward_only]
        return (
            [part for op in operators for part in self._forward_parts(op, operators)],
            [part for op in trained for part in self._backward_parts(op, trained)],
        )

    def launched(
        self, parts: Sequence[Amount], operators: Sequence[Operator], phase: Phase, *, kernels: int
    ) -> Amount:
        """Return the parts of a pass, some of them sums, as the host launches so many kernels."""
        own = operators if phase is Phase.FORWARD else [op for op in operators if not op.forward_only]
        return self._launched(parts, own, phase, kernels=kernels)

    def _forward(self, operators: Sequence[Operator]) -> Amount:
        parts = [part for op in operators for part in self._forward_parts(op, operators)]
        return self._launched(parts, operators, Phase.FORWARD)

    def _forward_parts(self, op: Operator, operators: Sequence[Operator]) -> list[Amount]:
        match op:
            case MatrixProduct():
                estimate, family = self._product(op, Phase.FORWARD), Family.MATRIX_PRODUCT
            case AttentionCore():
                return self._core_parts(op, Phase.FORWARD, operators)
            case MemoryPass():
                if not op.forward_bytes:
                    return []
                estimate, family = self._memory_pass(op, Phase.FORWARD), Family.MEMORY_PASS
            case CollectivePass():
                is_alone = op.phase is Phase.FORWARD and op.partner is None
                return [self._collective(op)] if is_alone else []
        return [self.ledger.booked(estimate, cause=Cause.COMPUTE, family=family)]

    def _product(self, op: MatrixProduct, phase: Phase) -> Timed:
        paces = self.framework.pace
        pace = paces.products
        if _is_misaligned(op):
            pace *= paces.misaligned_attention
        return self.kernels.matrix_product(op, phase=phase).scaled(pace)

    def _memory_pass(self, op: MemoryPass, phase: Phase) -> Timed:
        paces = self.framework.pace
        if op.module in EAGER_ALREADY:
            return self.kernels.memory_pass(op, phase=phase)
        pace = paces.memory_passes
        if op.module is Module.CORE_ATTENTION:
            pace *= paces.unfused_attention
        return self.kernels.memory_pass(op, phase=phase).scaled(pace)

    def _collective(self, op: CollectivePass) -> Amount:
        estimate = self.collectives(op).scaled(op.count * self.framework.pace.of_axis(op.axis))
        return self.ledger.booked(estimate, cause=AXIS_CAUSES[op.axis], family=Family.COLLECTIVE)

    def _core_parts(self, op: AttentionCore, phase: Phase, operators: Sequence[Operator]) -> list[Amount]:
        """Return the attention core and what it does not hide of its ring.

        On a ring the core is one kernel per block of keys, each over half its pairs (the causal mask,
        balanced over ranks). The attention to the rank's own block hides the first exchange, and so
        on: the last block's attention has nothing left to hide.
        """
        if op.sinks and not self.framework.skips_beside_sinks:
            op = replace(op, causal=False, window=None)
        rings = _partners(op, phase, operators)
        blocks = 1 + max((ring.count for ring in rings), default=0)
        block = replace(op, key_length=op.key_length // blocks)
        pace = self.attention_pace * (self.framework.pace.sink_attention if op.sinks else 1.0)
        estimate = self.kernels.attention(block, phase=phase).scaled(blocks * pace)
        core = self.ledger.booked(estimate, cause=Cause.COMPUTE, family=Family.ATTENTION)
        behind = core.seconds * (blocks - 1) / blocks
        return [core, *(self._beside(self._collective(ring), behind) for ring in rings)]

    def _beside(self, communication: Amount, seconds: Any) -> Amount:  # noqa: ANN401 - of an amount
        return self.ledger.exposed(
            communication, behind_seconds=seconds, contention_fraction=self.contention_fraction
        )

    def _backward(self, operators: Sequence[Operator]) -> Amount:
        operators = [op for op in operators if not op.forward_only]
        parts = [part for op in operators for part in self._backward_parts(op, operators)]
        return self._launched(parts, operators, Phase.BACKWARD)

    def _backward_parts(self, op: Operator, operators: Sequence[Operator]) -> list[Amount]:
        match op:
            case MatrixProduct():
                return [
                    part
                    for phase in (Phase.INPUT_GRADIENT, Phase.WEIGHT_GRADIENT)
                    if op.has_input_gradient or phase is Phase.WEIGHT_GRADIENT
                    for part in self._gradient_parts(op, phase, operators)
                ]
            case AttentionCore():
                return self._core_parts(op, Phase.BACKWARD, operators)
            case MemoryPass():
                if not op.backward_bytes:
                    return []
                estimate = self._memory_pass(op, Phase.BACKWARD)
                return [self.ledger.booked(estimate, cause=Cause.COMPUTE, family=Family.MEMORY_PASS)]
            case CollectivePass():
                is_alone = op.phase is Phase.BACKWARD and op.partner is None
                return [self._collective(op)] if is_alone else []

    def _gradient_parts(self, op: MatrixProduct, phase: Phase, operators: Sequence[Operator]) -> list[Amount]:
        """Return a gradient product and what stays visible of the collectives beside it.

        Weights that do not train have no gradient, and nothing hides the collectives that ran beside it.
        """
        products = []
        if op.trains or phase is not Phase.WEIGHT_GRADIENT:
            timed = self._product(op, phase)
            products = [self.ledger.booked(timed, cause=Cause.COMPUTE, family=Family.MATRIX_PRODUCT)]
        partners = _partners(op, phase, operators)
        if self.framework.saves_gathered_inputs:
            partners = [other for other in partners if not gathers_a_saved_input(other)]
        beside = [self._collective(other) for other in partners]
        if self.framework.hides_tensor_parallel_backward:
            work = products[0].seconds if products else 0.0
            beside = [self._beside(amount, work) for amount in beside]
        return [*products, *beside]

    def gradients_of_inputs(self, operators: Sequence[Operator]) -> Amount:
        """Return the backward pass without gradients of weights; nothing hides what ran beside those."""
        frozen = [replace(op, trains=False) if isinstance(op, MatrixProduct) else op for op in operators]
        return self._backward(frozen)

    def gradients_of_weights(self, operators: Sequence[Operator]) -> Amount:
        """Return the products that make gradients of weights, one after the other."""
        products = [op for op in weight_products(operators) if op.trains and not op.forward_only]
        timed = [self._product(op, Phase.WEIGHT_GRADIENT) for op in products]
        parts = [
            self.ledger.booked(each, cause=Cause.COMPUTE, family=Family.MATRIX_PRODUCT) for each in timed
        ]
        return self._at_launch_rate(parts, kernels=len(parts), phase=Phase.BACKWARD)

    def split_again(self, inputs: Amount, operators: Sequence[Operator]) -> Amount:
        """Return a layer's gradients of inputs with what a host takes to find what is left for the weights.

        A host that only launches kernels is ahead of them.
        """
        if self.host is None or not self.host.is_serial:
            return inputs
        count = operator_counts(op for op in operators if not op.forward_only).backward
        seconds = count * self.host.split_seconds
        return self.ledger.launched(inputs, host_seconds=seconds, serial_fraction=1.0)

    def again(self, operators: Sequence[Operator], recompute: Recompute) -> Amount:
        """Return what a mode of recomputation runs a second time."""
        again = recomputed_operators(operators, recompute=recomputed_modules(recompute))
        parts = [part for op in again for part in self._forward_parts(op, again)]
        repeated = self._launched(parts, again, Phase.FORWARD)
        return self.ledger.recast(repeated, Cause.RECOMPUTE, keep=frozenset(AXIS_CAUSES.values()))

    def _wrapped(self, work: Amount, recompute: Recompute, *, backward: bool) -> Amount:
        """Return a pass with what the host takes to keep a layer's inputs, or to begin it again.

        A host that only launches kernels is ahead of them.
        """
        if self.host is None or not self.host.is_serial or recompute.mode is RecomputeMode.NONE:
            return work
        is_core = recompute.mode is RecomputeMode.SELECTIVE
        again = self.host.core_recomputed if is_core else self.host.recomputed
        seconds = again.backward if backward else again.forward
        return self.ledger.launched(work, host_seconds=seconds, serial_fraction=1.0)

    def _launched(
        self,
        parts: Sequence[Amount],
        operators: Sequence[Operator],
        phase: Phase,
        *,
        kernels: int | None = None,
    ) -> Amount:
        """Return all parts of a pass as the host launches them, with what collectives between nodes wait.

        They are one kernel each unless a caller says how many.
        """
        kernels = (len(parts) if kernels is None else kernels) + _repeats(operators, phase)
        work = self._beside_slowest(self._at_launch_rate(parts, kernels=kernels, phase=phase))
        if not self.crossing_seconds:
            return work
        waits = self.crossing_seconds * sum(
            op.count
            for op in operators
            if isinstance(op, CollectivePass) and op.axis == "tensor_parallel" and op.phase is phase
        )
        wait = self.ledger.launched(self.ledger.total(()), host_seconds=waits, serial_fraction=1.0)
        return self.ledger.total((work, self.ledger.recast(wait, Cause.TENSOR_PARALLEL, keep=())))

    def _beside_slowest(self, work: Amount) -> Amount:
        """Return a pass of ranks that meet in every layer, where none goes on before the slowest is there.

        Processors of one kind differ from moment to moment; accelerators do not that a host could measure.
        """
        if self.host is None or not self.host.is_serial or not self.host.waiting_fraction:
            return work
        waits = self.ledger.exposed(
            work, behind_seconds=work.seconds, contention_fraction=self.host.waiting_fraction
        )
        return self.ledger.total((work, self.ledger.recast(waits, Cause.TENSOR_PARALLEL, keep=())))

    def _launch_seconds(self, phase: Phase) -> Seconds:
        """Return the host time of each kernel: as measured, else as the framework's pace has it."""
        if self.host is None:
            return self.framework.pace.launch_seconds + self.added_launch_seconds
        return self.host.operator.forward if phase is Phase.FORWARD else self.host.operator.backward

    def _at_launch_rate(self, parts: Sequence[Amount], *, kernels: int, phase: Phase) -> Amount:
        """Return all parts, stretched to the time in which the host can launch their kernels."""
        host = kernels * self._launch_seconds(phase)
        is_serial = self.host is not None and self.host.is_serial
        serial = 1.0 if is_serial else self.framework.pace.serial_host_fraction
        return self.ledger.launched(self.ledger.total(parts), host_seconds=host, serial_fraction=serial)


def model_flops(layers: Sequence[tuple[Layer, int]], *, sequence_length: int, samples: int) -> Flops:
    """Return the useful FLOP of a step: forward once, backward twice, recomputation not counted.

    Gradients that nobody needs, of frozen weights and before them, do not count.
    """
    step = sum(count * step_flops_per_sample(layer, sequence_length) for layer, count in layers)
    return step * samples


def recomputed_modules(recompute: Recompute) -> frozenset[Module]:
    """Return what a layer computes again in backward."""
    match recompute.mode:
        case RecomputeMode.NONE:
            return NO_MODULES
        case RecomputeMode.SELECTIVE:
            return frozenset(Module(name) for name in recompute.modules)
        case RecomputeMode.FULL:
            return WHOLE_LAYER


def _is_misaligned(op: MatrixProduct) -> bool:
    """Tell whether tensor cores do not take the rows of a core's operands, of two bytes each, as they lie.

    Only products of activations: weights are padded where it matters.
    """
    return not op.has_weights and any(dim % ALIGNED_ELEMENTS for dim in (op.columns, op.inner))


def _partners(
    op: MatrixProduct | AttentionCore, phase: Phase, operators: Sequence[Operator]
) -> list[CollectivePass]:
    """Return the collectives that may run beside one phase of an operator."""
    return [
        other
        for other in operators
        if isinstance(other, CollectivePass) and other.partner == op.name and other.hidden_behind is phase
    ]


def _working_bytes(operators: Sequence[Operator], cut: Cut) -> Bytes:
    """Return the most bytes that live while one operator runs: gradients beside products, a loss's own.

    What is forward only runs while little else lives.
    """
    products = (
        _gradient_bytes(operators, cut)
        + WEIGHT_GRADIENT_BYTES * _largest_weights(operators)
        + cut.element_bytes * _largest_copy(operators)
    )
    passes = (op for op in operators if isinstance(op, MemoryPass | AttentionCore) and not op.forward_only)
    return max([products, *(op.working_bytes for op in passes)])


def _repeats(operators: Sequence[Operator], phase: Phase) -> int:
    """Return the kernels that operators launch beyond the first of each, in forward or in backward."""
    return sum(
        op.repeats - 1
        for op in operators
        if isinstance(op, MatrixProduct | MemoryPass) and _repeats_in(op, phase)
    )


def _repeats_in(op: MatrixProduct | MemoryPass, phase: Phase) -> bool:
    """Whether an operator runs step by step; the weight gradient of all steps is one product."""
    if isinstance(op, MatrixProduct):
        return phase is Phase.FORWARD or op.has_input_gradient
    return bool(op.forward_bytes if phase is Phase.FORWARD else op.backward_bytes)


def _largest_weights(operators: Sequence[Operator]) -> int:
    """Return the most weights that one product trains; the head's are left to its own kernels."""
    trained = (op for op in weight_products(operators) if op.trains and op.module is not Module.HEAD)
    # Experts' gradients are added up one by one.
    return max((weights_of(op) // (op.count if op.module is Module.MOE else 1) for op in trained), default=0)


def _largest_copy(operators: Sequence[Operator]) -> int:
    """Return the most weights of which one product has a copy made."""
    return max((weights_of(op) for op in weight_products(operators) if op.dequantized), default=0)


def _gradient_bytes(operators: Sequence[Operator], cut: Cut) -> Bytes:
    """Return the most bytes of gradients that one product's backward holds: its output's and input's."""
    products = [op for op in operators if isinstance(op, MatrixProduct) and not op.forward_only]
    if not products:
        return 0.0
    return cut.element_bytes * max(op.gradient_elements for op in products)
