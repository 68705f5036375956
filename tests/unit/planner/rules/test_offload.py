"""What a framework cannot keep on the host, or not beside what else a plan does."""

import pytest

from planner.framework_rules import broken, rules_of
from planner.frameworks import FRAMEWORKS
from planner.job import Job
from planner.optimizers import OPTIMIZERS
from planner.rules.offload import RULES
from planner.rules.rule import Proposal
from planner.setting import Setting
from planner.strategy import HostShares, Mesh, Recompute, RecomputeMode, ZeroStage
from tests.unit.planner.rules.cases import Case, check, layout
from tests.unit.planner.settings import setting

FULL = Recompute(mode=RecomputeMode.FULL)
EIGHT = Mesh(data_parallel=8)
ALL = HostShares(optimizer=1.0, parameters=1.0, gradients=1.0)
WITH_GRADIENTS = HostShares(optimizer=1.0, gradients=1.0)
OPTIMIZER = HostShares(optimizer=1.0)
MOST = HostShares(optimizer=0.7, parameters=0.7, gradients=0.7)
HALF = HostShares(optimizer=0.5, gradients=0.5)
ONE, TWO, THREE = ZeroStage.OPTIMIZER, ZeroStage.GRADIENTS, ZeroStage.PARAMETERS

CASES = (
    Case(
        rule="host-shares",
        framework="pytorch",
        broken={
            "mesh": EIGHT,
            "zero_stage": THREE,
            "on_host": MOST,
        },
        pointer="/plan/offload/optimizer",
        nearest=1.0,
        kept={"mesh": EIGHT, "zero_stage": THREE, "on_host": ALL},
    ),
    Case(
        rule="host-shares",
        framework="megatron-core",
        version="0.11",
        broken={"mesh": EIGHT, "zero_stage": ONE, "on_host": OPTIMIZER},
        pointer="/plan/offload/optimizer",
        nearest=0.0,
        kept={"mesh": EIGHT, "zero_stage": ONE},
    ),
    Case(
        rule="host-shares",
        framework="torchtitan",
        broken={"mesh": EIGHT, "activations": (1.0,)},
        pointer="/plan/offload/activations",
        nearest=0.0,
        kept={"mesh": EIGHT, "zero_stage": THREE, "on_host": ALL},
    ),
    Case(
        rule="host-together",
        framework="torchtitan",
        broken={"mesh": EIGHT, "zero_stage": THREE, "on_host": WITH_GRADIENTS},
        pointer="/plan/offload/optimizer",
        nearest=1.0,
        kept={"mesh": EIGHT, "zero_stage": THREE, "on_host": ALL},
    ),
    Case(
        rule="host-gradients",
        framework="megatron-core",
        broken={"mesh": EIGHT, "zero_stage": ONE, "on_host": WITH_GRADIENTS},
        pointer="/plan/offload/gradients",
        nearest=0.0,
        kept={"mesh": EIGHT, "zero_stage": ONE, "on_host": HostShares(optimizer=0.3)},
    ),
    Case(
        rule="host-gradients",
        framework="deepspeed",
        broken={"mesh": EIGHT, "zero_stage": TWO, "on_host": OPTIMIZER},
        pointer="/plan/offload/gradients",
        nearest=1.0,
        kept={"mesh": EIGHT, "zero_stage": TWO, "on_host": WITH_GRADIENTS},
    ),
    Case(
        rule="host-with-zero-stage",
        framework="megatron-core",
        broken={"mesh": EIGHT, "zero_stage": THREE, "on_host": OPTIMIZER},
        pointer="/plan/zero_stage",
        nearest=1,
        kept={"mesh": Mesh(), "on_host": OPTIMIZER},
    ),
    Case(
        rule="host-with-zero-stage",
        framework="deepspeed",
        broken={"mesh": EIGHT, "zero_stage": TWO, "on_host": HALF},
        pointer="/plan/zero_stage",
        nearest=3,
        kept={"mesh": EIGHT, "zero_stage": THREE, "on_host": HALF},
    ),
    Case(
        rule="host-with-zero-stage",
        framework="deepspeed",
        broken={"mesh": EIGHT, "zero_stage": TWO, "on_host": ALL},
        pointer="/plan/zero_stage",
        nearest=3,
        kept={"mesh": EIGHT, "zero_stage": THREE, "on_host": ALL},
    ),
    Case(
        rule="host-with-pipeline",
        framework="megatron-deepspeed",
        broken={
            "mesh": Mesh(data_parallel=8, pipeline_parallel=2),
            "zero_stage": ONE,
            "on_host": WITH_GRADIENTS,
        },
        pointer="/plan/offload/optimizer",
        nearest=0.0,
        kept={"mesh": EIGHT, "zero_stage": ONE, "on_host": WITH_GRADIENTS},
    ),
    Case(
        rule="host-with-pipeline",
        framework="megatron-core",
        broken={"mesh": Mesh(data_parallel=8, pipeline_parallel=2), "activations": (1.0,)},
        pointer="/plan/offload/activations",
        nearest=0.0,
        kept={"mesh": Mesh(data_parallel=8, pipeline_parallel=2), "zero_stage": ONE, "on_host": OPTIMIZER},
    ),
    Case(
        rule="host-with-recompute",
        framework="megatron-core",
        broken={"mesh": EIGHT, "recompute": FULL, "activations": (1.0,)},
        pointer="/plan/recompute",
        nearest="none",
        kept={"mesh": EIGHT, "recompute": FULL},
    ),
    Case(
        rule="host-with-recompute",
        framework="deepspeed",
        broken={"mesh": EIGHT, "activations": (1.0,)},
        pointer="/plan/recompute",
        nearest="full",
        kept={"mesh": EIGHT, "recompute": FULL, "activations": (1.0,)},
    ),
    Case(
        rule="host-activations-alike",
        framework="deepspeed",
        broken={"mesh": EIGHT, "recompute": (FULL, FULL), "activations": (0.0, 1.0)},
        pointer="/plan/offload/activations",
        nearest=1.0,
        kept={"mesh": EIGHT, "recompute": (Recompute(), FULL), "activations": (0.0, 1.0)},
    ),
    Case(
        rule="host-keeps-a-layer",
        framework="megatron-core",
        broken={"mesh": EIGHT, "activations": (1.0,)},
        pointer="/plan/offload/activations",
        nearest=0.0,
        kept={"mesh": EIGHT},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_layout_that_breaks_a_rule_is_told_the_nearest_that_keeps_it(case: Case) -> None:
    check(case)


def with_optimizer(name: str) -> Setting:
    judged = setting(framework="any", num_devices=64)
    job = Job(
        global_batch_size=128,
        sequence_length=8192,
        framework="any",
        optimizer=OPTIMIZERS[name],
    )
    return Setting(workload=judged.workload, cluster=judged.cluster, job=job, framework=judged.framework)


def test_an_optimizer_that_multiplies_matrices_stays_on_the_device() -> None:
    (rule,) = (rule for rule in RULES if rule.name == "host-optimizer")
    for name, is_legal in (("muon", False), ("adamw", True)):
        judged = with_optimizer(name)
        proposal = Proposal(setting=judged, layout=layout(judged, mesh=EIGHT, on_host=OPTIMIZER))
        assert is_legal == (not list(rule.check(proposal)))


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} | {"host-optimizer"} == {rule.name for rule in RULES}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_shares_that_a_framework_fills_in_are_legal_in_it(name: str) -> None:
    judged = setting(framework=name, num_devices=64)
    limits = judged.framework.limits.offload
    if not limits.has_states:
        return
    stage = max(
        set(limits.zero_stages) & set(limits.parameter_zero_stages) & set(judged.framework.zero_stages)
    )
    proposal = Proposal(
        setting=judged, layout=layout(judged, mesh=EIGHT, zero_stage=stage, on_host=limits.shares(1.0))
    )
    assert not broken(rules_of(judged.framework), proposal)
