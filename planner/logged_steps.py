"""Plans that ran, and plans that may: their steps priced again and again with the same measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp

from planner.cost.corrections import FACT, Correction, Corrections, Kind
from planner.cost.model import CostModel
from planner.cost.pipeline import Assignment
from planner.cost.tally import Family
from planner.errors import InvalidRequest
from planner.legality import Setting
from planner.planning import PlanRequest, fixed_plan
from planner.played_plan import play
from planner.prediction import family_errors
from planner.strategy import Layout, ShortPlan, TrainingPlan
from planner.units import NANOSECONDS_PER_SECOND, Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedStep:
    """One plan that ran: what was asked, the plan, and the time of its steps."""

    label: str
    request: PlanRequest
    plan: TrainingPlan | ShortPlan
    measured_seconds: Seconds
    spread_seconds: Seconds = 0.0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PricedStep:
    """A plan that can be priced again and again under other corrections."""

    setting: Setting
    layout: Layout
    assignment: Assignment
    model: CostModel

    @classmethod
    def of(cls, step: LoggedStep, *, device: str, number: int) -> "PricedStep":
        """Return a logged step to price; InvalidRequest where it cannot be, under ``/steps/{number}``."""
        pointer = f"/steps/{number}"
        if not step.measured_seconds > 0:
            raise InvalidRequest(
                f"{step.label}: a step takes {step.measured_seconds} s", pointer=f"{pointer}/step_seconds"
            )
        request = before_calibration(step.request)
        setting, fixed = fixed_plan(request, step.plan)
        groups = {setting.cluster.group(name).device.name for name in fixed.node_groups}
        if len(set(fixed.node_groups)) != 1 or groups != {device}:
            raise InvalidRequest(
                f"{step.label}: the plan does not run on one node group of {device}",
                pointer=f"{pointer}/plan",
            )
        model = CostModel(
            setting=setting,
            group=setting.cluster.group(fixed.node_groups[0]),
            profiles=request.profiles,
            memory_fraction=request.constraints.memory_fraction,
        )
        return cls(setting=setting, layout=fixed.layout, assignment=fixed.assignment, model=model)

    def seconds(self, logs: Mapping[Kind, float]) -> Seconds:
        """Return the replayed step where each kind takes ``exp(log)`` times as long."""
        by_kind = {kind: Correction(factor=exp(value)) for kind, value in logs.items()}
        model = CostModel(
            setting=self.setting,
            group=self.model.group,
            profiles=self.model.profiles,
            memory_fraction=self.model.memory_fraction,
            like=self.model,
            corrected=Corrections(by_kind=by_kind),
        )
        return play(model, self.layout, self.assignment).played.makespan_ns / NANOSECONDS_PER_SECOND

    def errors(self) -> Mapping[Family, Seconds]:
        """Return one standard deviation of the step by family, before anything is corrected."""
        return family_errors(play(self.model, self.layout, self.assignment))


def before_calibration(request: PlanRequest) -> PlanRequest:
    """Return a request without what anybody's calibration says."""
    kept = tuple(profile for profile in request.profiles if FACT not in profile.facts)
    return replace(request, profiles=kept)


def predicted_steps(request: PlanRequest, plans: Sequence[TrainingPlan]) -> tuple[Seconds, ...]:
    """Return the predicted step of each plan of one request; InvalidRequest for one that is illegal.

    Plans share what is read of measurements, which takes longer than to price one.
    """
    models: dict[str, CostModel] = {}
    found = []
    for plan in plans:
        setting, fixed = fixed_plan(request, plan)
        (name,) = set(fixed.node_groups)
        model = CostModel(
            setting=setting,
            group=setting.cluster.group(name),
            profiles=request.profiles,
            memory_fraction=request.constraints.memory_fraction,
            like=models.get(name),
        )
        models.setdefault(name, model)
        found.append(play(model, fixed.layout, fixed.assignment).played.makespan_ns / NANOSECONDS_PER_SECOND)
    return tuple(found)
