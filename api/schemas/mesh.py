"""The parallel degrees of a plan on the wire, and how its ranks are numbered."""

from collections.abc import Callable
from typing import Annotated, Self

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from api.schemas.document import DeviceCount, Flag, InputDocument, one_of
from planner.strategy import DEFAULT_EXPERT_RANK_ORDER, DEFAULT_RANK_ORDER, ContextParallelScheme, Mesh


def _permutation_of(words: tuple[str, ...]) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    def check(order: tuple[str, ...]) -> tuple[str, ...]:
        if sorted(order) != sorted(words):
            raise PydanticCustomError(
                "rank_order",
                "should name each of {words} once, innermost first",
                {"words": ", ".join(words), "nearest_legal": [list(words)]},
            )
        return order

    return check


RankOrder = Annotated[tuple[str, ...], AfterValidator(_permutation_of(DEFAULT_RANK_ORDER))]
ExpertRankOrder = Annotated[tuple[str, ...], AfterValidator(_permutation_of(DEFAULT_EXPERT_RANK_ORDER))]
Scheme = Annotated[ContextParallelScheme, one_of(ContextParallelScheme)]


class MeshDocument(InputDocument):
    """Parallel degrees, and the order in which ranks are numbered, innermost first."""

    data_parallel: DeviceCount = 1
    tensor_parallel: DeviceCount = 1
    context_parallel: DeviceCount = 1
    pipeline_parallel: DeviceCount = 1
    expert_parallel: DeviceCount = 1
    expert_tensor_parallel: DeviceCount = 1
    sequence_parallel: Flag = False
    context_parallel_scheme: Scheme = ContextParallelScheme.RING
    all_to_all_degree: DeviceCount = Field(
        default=1, description="Ranks of the inner all-to-all where the scheme is mixed."
    )
    rank_order: RankOrder = DEFAULT_RANK_ORDER
    expert_rank_order: ExpertRankOrder = DEFAULT_EXPERT_RANK_ORDER

    @classmethod
    def from_mesh(cls, mesh: Mesh) -> Self:
        """Return the document of a mesh."""
        return cls(
            data_parallel=mesh.data_parallel,
            tensor_parallel=mesh.tensor_parallel,
            context_parallel=mesh.context_parallel,
            pipeline_parallel=mesh.pipeline_parallel,
            expert_parallel=mesh.expert_parallel,
            expert_tensor_parallel=mesh.expert_tensor_parallel,
            sequence_parallel=mesh.sequence_parallel,
            context_parallel_scheme=mesh.context_parallel_scheme,
            all_to_all_degree=mesh.all_to_all_degree,
            rank_order=mesh.rank_order,
            expert_rank_order=mesh.expert_rank_order,
        )

    def to_mesh(self) -> Mesh:
        """Return the mesh that the document says."""
        return Mesh(
            data_parallel=self.data_parallel,
            tensor_parallel=self.tensor_parallel,
            context_parallel=self.context_parallel,
            pipeline_parallel=self.pipeline_parallel,
            expert_parallel=self.expert_parallel,
            expert_tensor_parallel=self.expert_tensor_parallel,
            sequence_parallel=self.sequence_parallel,
            context_parallel_scheme=self.context_parallel_scheme,
            all_to_all_degree=self.all_to_all_degree,
            rank_order=self.rank_order,
            expert_rank_order=self.expert_rank_order,
        )
