"""A branch of a block: what stands between a norm and a residual sum."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from planner.units import Flops
from planner.workload.layers import Cut, PlainLayer, Split
from planner.workload.operators import Module, Operator, Saved, SavedTensor


@dataclass(frozen=True, kw_only=True, slots=True)
class BranchInput:
    """What a branch reads: the module that made it, and whether something before has saved it."""

    made_by: Module | None = Module.NORM
    """None for the layer's input, else the norm before the branch."""
    is_saved: bool = False

    def saved(self, name: str, *, hidden: int, cut: Cut, reads_narrow: bool = True) -> Saved:
        """Return the input as the first product of a branch saves it: the shard with sequence parallel.

        A router ``reads_narrow`` operands at no precision.
        """
        if self.is_saved:
            return ()
        width: float = cut.element_bytes
        if self.made_by is not None and reads_narrow:
            # The product alone keeps a norm's output.
            width = cut.keeping.input_bytes(cut.element_bytes)
        size_bytes = width * cut.sharded_tokens * hidden
        return (SavedTensor(name=name, size_bytes=size_bytes, made_by=self.made_by),)


class Branch(Protocol):
    """Attention, an MLP, experts or a state-space mixer. Branches compare equal when they cost the same."""

    label: ClassVar[str]
    """How the names of its norm and its residual sum begin."""
    module: ClassVar[Module]
    """The module that makes its output."""

    @property
    def hidden(self) -> int:
        """Width of what it reads and writes."""
        ...

    @property
    def has_output_bias(self) -> bool:
        """Whether the residual sum adds a bias as well."""
        ...

    @property
    def parameters(self) -> int:
        """Parameters of the whole branch."""
        ...

    def local_parameters(self, cut: Cut) -> int:
        """Return parameters that one device holds, padding and replicas included."""
        ...

    def local_expert_parameters(self, cut: Cut) -> int:
        """Return those of the local parameters that are split over expert parallel."""
        ...

    @property
    def idle_parameters(self) -> int:
        """Parameters that one token leaves unused."""
        ...

    @property
    def buffers(self) -> int:
        """Numbers that it keeps and nothing trains."""
        ...

    @property
    def splits(self) -> tuple[Split, ...]:
        """What the parallel degrees have to divide."""
        ...

    def operators(self, cut: Cut, source: BranchInput) -> Sequence[Operator]:
        """Return the operators of one micro-batch on one device, in forward order."""
        ...

    def forward_flops(self, sequence_length: int, *, memory_length: int) -> Flops:
        """Return useful forward FLOP of one sequence; ``memory_length`` is the encoder's length."""
        ...


class SplitBranch(PlainLayer):
    """A branch that tensor parallel alone splits: one count of parameters says all of them and a share."""

    __slots__ = ()

    @property
    def parameters(self) -> int:
        """Parameters of the whole branch."""
        return self._parameters(tensor_parallel=1)

    def local_parameters(self, cut: Cut) -> int:
        """Return one device's share, with what every device has whole."""
        return self._parameters(tensor_parallel=cut.tensor_parallel)

    @abstractmethod
    def _parameters(self, *, tensor_parallel: int) -> int:
        """Return one device's parameters of so many that share the branch."""
