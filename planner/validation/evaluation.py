"""Rows predicted one after the other, with the costs shared that equal jobs have in common."""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace

from planner.cost.model import CostModel
from planner.errors import InvalidRequest, MissingMeasurements
from planner.expansion import expand_short_plan
from planner.footprints import FOOTPRINTS, FootprintParameter, footprint_of
from planner.framework import Framework
from planner.job import Job
from planner.legality import Setting, layout_violations
from planner.parameters import PARAMETERS, Parameter, pace_of
from planner.plan import Prediction
from planner.planning import PlanRequest
from planner.played_plan import play
from planner.prediction import predict
from planner.programs import program_of, traits_of
from planner.strategy import ShortPlan
from planner.validation.measured import UNKNOWN, Measured, measured_of
from planner.validation.requests import Question, question_of
from planner.validation.rows import Row, UnusableRow
from planner.workload.sizes import UnfitValue
from planner.workload.trainable import trained_workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One row with what was measured and predicted; ``skipped`` says why there is no prediction."""

    row: Row
    measured: Measured = UNKNOWN
    prediction: Prediction | None = None
    question: Question | None = None
    skipped: str | None = None


@dataclass(kw_only=True, eq=False)
class Evaluator:
    """Predicts rows; cost models are kept, so that rows of equal jobs price each layer once."""

    parameters: tuple[Parameter, ...] = PARAMETERS
    footprints: tuple[FootprintParameter, ...] = FOOTPRINTS
    like: "Evaluator | None" = None
    """Another evaluator, whose kernels and links are shared."""
    _models: dict[object, CostModel] = field(default_factory=dict)

    def outcomes(self, rows: Iterable[Row]) -> Iterator[Outcome]:
        """Yield the outcome of each row in order."""
        return map(self.outcome, rows)

    def outcome(self, row: Row) -> Outcome:
        """Return a row with its prediction, or with the reason why it has none."""
        try:
            return self._evaluated(row)
        except (UnusableRow, UnfitValue) as error:
            return Outcome(row=row, skipped=str(error))
        except (InvalidRequest, MissingMeasurements) as error:
            return Outcome(row=row, skipped=error.message)
        except Exception as error:  # noqa: BLE001 - reported with the row, where a test refuses it
            return Outcome(row=row, skipped=f"error: {type(error).__name__}: {error}")

    def _evaluated(self, row: Row) -> Outcome:
        measured = measured_of(row)
        if measured.has_failed_unexplained:
            raise UnusableRow("it failed, and nothing says whether for memory")
        if measured.says_nothing:
            raise UnusableRow("no step time, tokens per second, peak memory or out-of-memory verdict")
        question = question_of(row)
        return Outcome(row=row, measured=measured, question=question, prediction=self.prediction(question))

    def prediction(self, question: Question) -> Prediction:
        """Return the prediction of a row's plan; UnusableRow with the rule that the plan breaks."""
        request = question.request
        setting = Setting(
            workload=trained_workload(request.workload, request.job),
            cluster=request.cluster,
            job=request.job,
            framework=_running(self._traits(request.job), question.plan),
        )
        fixed = expand_short_plan(question.plan, setting)
        violations = (*fixed.violations, *layout_violations(setting, fixed.layout))
        if violations or fixed.assignment is None:
            raise UnusableRow(f"illegal: {violations[0].rule}")
        return predict(play(self.model(request, setting), fixed.layout, fixed.assignment))

    def _traits(self, job: Job) -> Framework:
        """Return the traits of a job's program, with the pace and the footprint that parameters give it."""
        traits = traits_of(job.framework, job.framework_version)
        program = program_of(job.framework, job.framework_version)
        return replace(
            traits,
            pace=pace_of(program, self.parameters),
            footprint=footprint_of(program, self.footprints),
        )

    def model(self, request: PlanRequest, setting: Setting) -> CostModel:
        """Return the costs of a setting; jobs that differ in their global batch alone share them."""
        job, splits = replace(request.job, global_batch_size=1), setting.framework.splits_backward
        key = (request.workload, request.cluster, job, splits)
        if key not in self._models:
            self._models[key] = CostModel(
                setting=setting,
                group=request.cluster.node_groups[0],
                profiles=request.profiles,
                memory_fraction=request.constraints.memory_fraction,
                like=self.like.model(request, setting) if self.like else None,
            )
        shared = copy(self._models[key])
        shared.setting = setting
        return shared


def _running(traits: Framework, plan: ShortPlan) -> Framework:
    """Return traits with the schedule of a plan: what ran had it, as forks of a framework do."""
    if plan.schedule is None or plan.schedule.name in traits.schedules:
        return traits
    return replace(traits, schedules=(*traits.schedules, plan.schedule.name))
