"""How a search ended, and the proof: value, bound, what was searched, what was ruled out."""

from collections.abc import Mapping

from planner.plan import Certificate, MeshCounts
from planner.search.outcome import Candidate, SearchOutcome
from planner.units import NANOSECONDS_PER_SECOND


def certify(outcome: SearchOutcome, best: Candidate, *, dimensions: Mapping[str, str]) -> Certificate:
    """Return the certificate of a plan: proven optimal when no plan of the space can be faster."""
    value, bound = best.makespan_ns, min(outcome.lower_bound_ns, best.makespan_ns)
    return Certificate(
        objective="step_time",
        unit="s",
        value=value / NANOSECONDS_PER_SECOND,
        lower_bound=bound / NANOSECONDS_PER_SECOND,
        relative_gap=(value - bound) / value,
        proven_optimal=outcome.finished,
        dimensions=dimensions,
        meshes=MeshCounts(total=outcome.total, pruned=outcome.pruned, solved=outcome.solved),
        plans_in_space=outcome.plans,
        solve_seconds=outcome.solve_seconds,
    )
