"""How the solver is set: how hard a program is tried, and what suits programs of this kind."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpSolver

LARGEST_SUM: Final = 1 << 61
"""No row may reach this: the solver computes in 64-bit integers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkLimits:
    """How hard one program is tried: by work, so that a request always ends the same way, then by clock."""

    deterministic_seconds: float = 30.0
    wall_clock_seconds: float = 3600.0
    seed: int = 1
    num_workers: int = 1


def solver_within(limits: WorkLimits) -> "CpSolver":
    """Return a solver that keeps to some limits, set for many long rows over few small choices."""
    from ortools.sat.python.cp_model import CpSolver

    solver = CpSolver()
    solver.parameters.num_workers = limits.num_workers
    solver.parameters.random_seed = limits.seed
    # Work, not wall clock: on a busy machine a clock stops earlier and gives another plan.
    solver.parameters.max_deterministic_time = limits.deterministic_seconds
    solver.parameters.max_time_in_seconds = max(limits.wall_clock_seconds, 0.0)
    # All rows in the linear relaxation: without it there is next to no bound.
    solver.parameters.linearization_level = 2
    solver.parameters.symmetry_level = 0
    solver.parameters.cp_model_probing_level = 0
    return solver
