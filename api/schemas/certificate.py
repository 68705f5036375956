"""How a search ended, on the wire: what was found, what bounds it, over which space."""

from typing import Self

from pydantic import Field

from api.schemas.document import OutputDocument
from api.schemas.prediction import finite
from planner.plan import Certificate, MeshCounts


class MeshCountsDocument(OutputDocument):
    """Meshes of the space: all, ruled out by a bound, solved exactly."""

    total: int
    pruned: int
    solved: int

    @classmethod
    def from_counts(cls, counts: MeshCounts) -> Self:
        """Return the document of the counts."""
        return cls(total=counts.total, pruned=counts.pruned, solved=counts.solved)


class CertificateDocument(OutputDocument):
    """No plan in the space that ``dimensions`` describes has a lower value than ``lower_bound``."""

    objective: str
    unit: str
    value: float | None = Field(description="Of the plan; null without one.")
    lower_bound: float
    relative_gap: float | None = Field(description="Between both; null without a plan.")
    proven_optimal: bool
    dimensions: dict[str, str] = Field(description="Each searched, fixed by user or fixed by framework.")
    meshes: MeshCountsDocument
    plans_in_space: float | None = Field(description="Null where there are too many to say.")
    solve_seconds: float

    @classmethod
    def from_certificate(cls, certificate: Certificate) -> Self:
        """Return the document of a certificate."""
        return cls(
            objective=certificate.objective,
            unit=certificate.unit,
            value=finite(certificate.value),
            lower_bound=certificate.lower_bound,
            relative_gap=finite(certificate.relative_gap),
            proven_optimal=certificate.proven_optimal,
            dimensions=dict(certificate.dimensions),
            meshes=MeshCountsDocument.from_counts(certificate.meshes),
            plans_in_space=finite(certificate.plans_in_space),
            solve_seconds=certificate.solve_seconds,
        )
