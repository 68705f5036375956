"""What a layout is judged against, and which parallel degrees come out even in it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from planner.cluster import Cluster
from planner.framework import Framework
from planner.job import Job
from planner.workload.body import Body, body_of
from planner.workload.dispatch import EXPERT_AXIS, EXPERT_TENSOR_AXIS
from planner.workload.layers import Split, Workload
from planner.workload.split_attention import SplitAttention, split_attention

EXPERT_AXES: Final = (EXPERT_AXIS, EXPERT_TENSOR_AXIS)
ROUTED: Final = "experts"
"""What the layers of a mixture of experts split over expert parallel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a layout is judged against."""

    workload: Workload
    cluster: Cluster
    job: Job
    framework: Framework
    body: Body = field(init=False, compare=False, repr=False)
    """The workload's chain as stages see it."""
    model_splits: tuple[Split, ...] = field(init=False, compare=False, repr=False)
    """What the parallel degrees have to divide, over all layers, whatever the framework."""
    splits: tuple[Split, ...] = field(init=False, compare=False, repr=False)
    """The same in the framework, which may not copy pieces that are fewer than ranks."""
    split_attention: tuple[SplitAttention, ...] = field(init=False, compare=False, repr=False)
    """The kinds of attention whose sequences context parallel splits."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "body", body_of(self.workload))
        found = {split: None for run in self.workload.runs for split in run.layer.splits}
        object.__setattr__(self, "model_splits", tuple(found))
        whole = tuple(replace(split, replicate=False) for split in found)
        object.__setattr__(self, "splits", tuple(found) if self.framework.limits.copies_heads else whole)
        length = min(self.sequence_lengths, default=None)
        attention = () if length is None else split_attention(self.workload, sequence_length=length)
        object.__setattr__(self, "split_attention", attention)

    @property
    def num_layers(self) -> int:
        """Layers that are split over stages."""
        return self.body.num_layers

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Lengths of a sample's sequences: the job's, and the decoder's where it has its own."""
        own = {getattr(getattr(run.layer, "stream", None), "length", None) for run in self.workload.runs}
        return tuple(sorted(length for length in {self.job.sequence_length, *own} if length is not None))

    @property
    def has_experts(self) -> bool:
        """Whether tokens are sent to experts."""
        return any(split.name == ROUTED for split in self.splits_over(EXPERT_AXIS))

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """Sizes of the vocabularies that embeddings and heads are made for."""
        found = {getattr(run.layer, "vocabulary", None) for run in self.workload.runs}
        return tuple(sorted(size for size in found if isinstance(size, int)))

    def splits_over(self, axis: str) -> tuple[Split, ...]:
        """Return what the degree of an axis has to divide."""
        return tuple(split for split in self.splits if split.axis == axis)


def divisors(number: int) -> tuple[int, ...]:
    """Return all divisors of a positive number in ascending order."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))


def nearest_values(value: int, legal: Iterable[int], *, limit: int = 3) -> tuple[int, ...]:
    """Return up to ``limit`` legal values nearest to ``value`` (by ratio), in ascending order."""
    target = max(value, 1)
    ranked = sorted(legal, key=lambda other: (max(other, target) / max(min(other, target), 1), other))
    return tuple(sorted(ranked[:limit]))


def degree_is_legal(setting: Setting, axis: str, degree: int) -> bool:
    """Whether everything that an axis splits comes out even."""
    return all(split.allows(degree) for split in setting.splits_over(axis))


def legal_degrees(setting: Setting, axis: str) -> tuple[int, ...]:
    """Return every degree of an axis that the model allows, in ascending order.

    Where nothing bounds it the number of devices does.
    """
    pieces = [split.pieces for split in setting.splits_over(axis) if not split.replicate]
    candidates = divisors(min(pieces, default=setting.cluster.num_devices))
    return tuple(degree for degree in candidates if degree_is_legal(setting, axis, degree))


def legal_tensor_parallel(setting: Setting) -> tuple[int, ...]:
    """Return every tensor-parallel degree that the model allows."""
    return legal_degrees(setting, "tensor_parallel")
