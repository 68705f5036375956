"""What the host of a profiled machine takes for torch's own work around kernels, operator by operator.

The profiler runs a block whose kernels hardly matter in every way that a plan may ask for. What a way takes
beyond the kernels of that block, as the planner prices them, is the host's; it goes with the number of
operators.
On a processor the host runs the kernels too, so that its time comes on top of theirs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final, Self

from planner.cluster import Device
from planner.profile import Profile
from planner.strategy import Mesh
from planner.units import Seconds
from planner.workload.layers import Cut
from planner.workload.operators import CollectivePass, MatrixProduct, MemoryPass, Module, Operator, Phase
from planner.workload.transformer import DecoderLayer

PROGRAM: Final = "program"
"""The fact of a profile that holds the rows."""
PROCESSOR: Final = "cpu"
"""The architecture of a device that is the host itself."""
PROGRAM_OF_ROWS: Final = "pytorch"
"""The framework whose modules the profiler runs."""
PRODUCT_PHASES: Final = (Phase.FORWARD, Phase.INPUT_GRADIENT, Phase.WEIGHT_GRADIENT)
WAYS: Final = ("plain", "checkpoint", "tensor_parallel", "sequence_parallel", "sharded")

Rows = Mapping[tuple[str, str], Seconds]


@dataclass(frozen=True, kw_only=True, slots=True)
class BothWays:
    """Host seconds of forward and of backward."""

    forward: Seconds = 0.0
    backward: Seconds = 0.0

    def __add__(self, other: "BothWays") -> "BothWays":
        """Return both together."""
        return BothWays(forward=self.forward + other.forward, backward=self.backward + other.backward)

    def beyond(self, other: "BothWays") -> "BothWays":
        """Return what this takes more, nothing where it takes less."""
        return BothWays(
            forward=max(self.forward - other.forward, 0.0), backward=max(self.backward - other.backward, 0.0)
        )

    def times(self, factor: float) -> "BothWays":
        """Return this so many times."""
        return BothWays(forward=self.forward * factor, backward=self.backward * factor)

    def over(self, counts: "BothWays") -> "BothWays":
        """Return the time of each of so many operators."""
        return BothWays(forward=self.forward / counts.forward, backward=self.backward / counts.backward)


@dataclass(frozen=True, kw_only=True, slots=True)
class LargerBlock:
    """A block whose kernels take about as long as the host does around them."""

    block: DecoderLayer
    sequence_length: int

    @property
    def cut(self) -> Cut:
        """How the block was cut: not at all."""
        return Cut(micro_batch_size=1, sequence_length=self.sequence_length, element_bytes=4)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramRun:
    """The block that the profiler ran, how many of it, and what one took in every way, by way and phase."""

    block: DecoderLayer
    sequence_length: int
    layers: int
    rows: Rows
    larger: "LargerBlock | None" = None
    """A block whose kernels count; profiles of before it was measured lack it."""
    product: MatrixProduct | None = None
    """One that ran by itself among all of that, where the host runs kernels."""
    waiting_fraction: float = 0.0
    """What the slowest rank took longer than all of them on average; nothing where nobody has looked."""
    threads_per_core: tuple[float, ...] = ()
    """How many threads of all ranks share the core of each rank; empty where nobody has looked."""

    @classmethod
    def of(cls, device: Device, profiles: Iterable[Profile]) -> Self | None:
        """Return what the profiles of a device say; of several machines of its kind the median.

        None where none says all of it. Profiles that ran another block than the first are left out.
        """
        facts = [
            fact
            for profile in profiles
            if profile.device == device.name and (fact := _fact(profile)) is not None
        ]
        if not facts:
            return None
        first = facts[0]
        same = [_rows(fact) for fact in facts if _blocks(fact) == _blocks(first)]
        keys = set.intersection(*(set(rows) for rows in same))
        return cls(
            block=DecoderLayer(**first["block"]),
            sequence_length=int(first["sequence_length"]),
            layers=int(first["layers"]),
            rows={key: median(rows[key] for rows in same) for key in keys},
            larger=_larger(first),
            product=_product(first),
            waiting_fraction=median(float(fact.get("waiting_fraction", 0.0)) for fact in facts),
            threads_per_core=tuple(float(threads) for threads in first.get("threads_per_core", ())),
        )

    def product_seconds(self) -> Seconds:
        """Return what the product took in all of its phases."""
        return sum(self.rows["product", phase.value] for phase in PRODUCT_PHASES)

    def way(self, name: str) -> BothWays:
        """Return what one layer took in a way."""
        return BothWays(forward=self.rows[name, "forward"], backward=self.rows[name, "backward"])

    @property
    def cut(self) -> Cut:
        """How the block was cut: not at all."""
        return Cut(micro_batch_size=1, sequence_length=self.sequence_length, element_bytes=4)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostTimes:
    """Host seconds beside kernels: of each operator, of each layer that is wrapped, of passes and steps."""

    is_serial: bool
    """Whether nothing hides them: the host runs the kernels itself."""
    operator: BothWays
    tensor_parallel: BothWays
    """Of each operator of a layer whose tensors are split, on top."""
    sequence_parallel: BothWays
    """The same where the sequence is split between the layers as well."""
    sharded: BothWays
    """Of each unit whose parameters are gathered and gradients scattered."""
    recomputed: BothWays
    """Of each layer that is recomputed, its second forward pass aside."""
    core_recomputed: BothWays
    """Of each layer whose attention core alone is."""
    pass_seconds: Seconds
    """Of each pass of a pipeline."""
    listed_pass_seconds: Seconds
    """The same in schedules that torch runs from a list of actions: all but GPipe and 1F1B."""
    split_seconds: Seconds
    """Of each operator of a backward pass in two parts, beyond one pass and what every pass takes."""
    layer_update_seconds: Seconds
    """Of the update of one layer's tensors."""
    step_seconds: Seconds
    slowest_fraction: float = 0.0
    """What the slowest of some ranks takes longer than all of them on average."""
    waiting_fraction: float = 0.0
    """The same, where ranks meet in every layer and so wait for the slowest."""
    threads_per_core: tuple[float, ...] = ()
    """How many ranks' threads share the core of each rank; accelerators' hosts are ahead of them."""

    @classmethod
    def of(cls, run: ProgramRun, *, device: Device, kernels: BothWays) -> Self:
        """Return what a run says, where the kernels of its block take so long by themselves."""
        is_serial = device.architecture == PROCESSOR
        plain, counts = run.way("plain"), operator_counts(run.block.operators(run.cut))
        # Where the host only launches kernels, it does not wait for them: all of its time is its own.
        operator = plain.beyond(kernels if is_serial else BothWays()).over(counts)
        recomputed = run.way("checkpoint").beyond(plain)
        whole = replace(recomputed, backward=max(recomputed.backward - plain.forward, 0.0))
        core = whole
        if ("checkpoint_core", "forward") in run.rows:
            # The core's second pass is one operator again.
            found = run.way("checkpoint_core").beyond(plain)
            core = replace(found, backward=max(found.backward - operator.forward, 0.0))
        micro_batch = run.rows["pipeline", "micro_batch"] - run.layers * (plain.forward + plain.backward)
        pass_seconds = max(micro_batch, 0.0) / 2
        # Profiles of before they were measured lack them. A third pass of either stage is charged as such.
        split, unsplit = (run.rows.get((name, "micro_batch"), 0.0) for name in ("split_stages", "stages"))
        listed = (unsplit - 2 * run.layers * (plain.forward + plain.backward)) / 4
        listed_pass_seconds = max(listed, pass_seconds)
        beyond = split - unsplit - 2 * listed_pass_seconds
        return cls(
            is_serial=is_serial,
            operator=operator,
            tensor_parallel=run.way("tensor_parallel").beyond(plain).over(counts),
            sequence_parallel=run.way("sequence_parallel").beyond(plain).over(counts),
            sharded=run.way("sharded").beyond(plain),
            recomputed=whole,
            core_recomputed=core,
            pass_seconds=pass_seconds,
            listed_pass_seconds=listed_pass_seconds,
            split_seconds=max(beyond, 0.0) / run.layers / counts.backward,
            layer_update_seconds=run.rows["update", "layer"],
            step_seconds=run.rows["update", "step"],
            slowest_fraction=run.waiting_fraction,
            threads_per_core=run.threads_per_core if is_serial else (),
        )

    def among_kernels(self, run: ProgramRun, *, kernels: BothWays) -> "HostTimes":
        """Return the times of a host whose caches kernels of some size go through as well.

        ``kernels`` is what those of the larger block take; what it took beyond them is more than operators of
        the small one take. Everything that the host does is taken to be as much slower. A host that only
        launches kernels has its caches for itself.
        """
        if run.larger is None or not self.is_serial:
            return self
        counts = operator_counts(run.larger.block.operators(run.larger.cut))
        left = run.way("larger").beyond(kernels)
        alone = self.operator.forward * counts.forward + self.operator.backward * counts.backward
        return self.scaled(max((left.forward + left.backward) / alone, 1.0)) if alone else self

    def scaled(self, factor: float) -> "HostTimes":
        """Return the times of a host that takes so many times as long."""
        return HostTimes(
            is_serial=self.is_serial,
            operator=self.operator.times(factor),
            tensor_parallel=self.tensor_parallel.times(factor),
            sequence_parallel=self.sequence_parallel.times(factor),
            sharded=self.sharded.times(factor),
            recomputed=self.recomputed.times(factor),
            core_recomputed=self.core_recomputed.times(factor),
            pass_seconds=self.pass_seconds * factor,
            listed_pass_seconds=self.listed_pass_seconds * factor,
            split_seconds=self.split_seconds * factor,
            layer_update_seconds=self.layer_update_seconds * factor,
            step_seconds=self.step_seconds * factor,
            slowest_fraction=self.slowest_fraction,
            waiting_fraction=self.waiting_fraction,
            threads_per_core=self.threads_per_core,
        )

    def on(self, mesh: Mesh) -> "HostTimes":
        """Return the times on a mesh: DTensor's where operators are split, and ranks wait for each other."""
        if mesh.tensor_parallel == 1:
            return self
        more = self.sequence_parallel if mesh.sequence_parallel else self.tensor_parallel
        return replace(self, operator=self.operator + more, waiting_fraction=self.slowest_fraction)


def operator_counts(operators: Iterable[Operator]) -> BothWays:
    """Return how many kernels run in forward and in backward; a product has two gradients."""
    forward = backward = 0
    for op in operators:
        match op:
            case MatrixProduct():
                forward, backward = forward + 1, backward + 2
            case MemoryPass():
                forward, backward = forward + bool(op.forward_bytes), backward + bool(op.backward_bytes)
            case CollectivePass():
                pass
            case _:
                forward, backward = forward + 1, backward + 1
    return BothWays(forward=forward, backward=backward)


def _blocks(fact: Mapping[str, Any]) -> tuple[object, object]:
    return fact["block"], fact.get("larger")


def _larger(fact: Mapping[str, Any]) -> LargerBlock | None:
    if not {("larger", "forward"), ("larger", "backward")} <= _rows(fact).keys():
        return None
    found = fact["larger"]
    return LargerBlock(block=DecoderLayer(**found["block"]), sequence_length=int(found["sequence_length"]))


def _product(fact: Mapping[str, Any]) -> MatrixProduct | None:
    if not {("product", phase.value) for phase in PRODUCT_PHASES} <= _rows(fact).keys():
        return None
    rows, columns, inner = (int(fact["product"][name]) for name in ("rows", "columns", "inner"))
    return MatrixProduct(name="product", module=Module.MLP, rows=rows, columns=columns, inner=inner)


def _fact(profile: Profile) -> Mapping[str, Any] | None:
    fact = profile.facts.get(PROGRAM)
    if not isinstance(fact, Mapping) or not {"block", "sequence_length", "layers", "rows"} <= fact.keys():
        return None
    wanted = {(way, phase) for way in WAYS for phase in ("forward", "backward")}
    others = {("pipeline", "micro_batch"), ("update", "layer"), ("update", "step")}
    return fact if wanted | others <= _rows(fact).keys() else None


def _rows(fact: Mapping[str, Any]) -> dict[tuple[str, str], Seconds]:
    return {(str(row["program"]), str(row["phase"])): float(row["seconds"]) for row in fact["rows"]}
