"""Layouts that break one rule of a framework, or keep it."""

from dataclasses import dataclass, field
from typing import Any

from planner.expansion import zero_sharding
from planner.framework_rules import RULES, rules_of
from planner.rules.rule import Proposal
from planner.setting import Setting
from planner.strategy import (
    NOTHING_ON_HOST,
    Batch,
    HostShares,
    Layout,
    Mesh,
    Recompute,
    Schedule,
    Violation,
    ZeroStage,
)
from tests.unit.planner.settings import setting

DENSE = "llama-3-8b"
"""32 layers and heads, 8 key/value heads."""
EXPERTS = "mixtral-8x7b"
"""32 layers and heads, 8 key/value heads, 8 experts of width 14336."""


def layout(
    judged: Setting,
    *,
    mesh: Mesh,
    passes: int = 8,
    schedule: Schedule | None = None,
    zero_stage: ZeroStage = ZeroStage.NONE,
    recompute: Recompute | tuple[Recompute, ...] | None = None,
    on_host: HostShares = NOTHING_ON_HOST,
    activations: tuple[float, ...] = (),
) -> Layout:
    """Return a layout of some decisions, the others the simplest."""
    return Layout(
        mesh=mesh,
        batch=Batch(micro_batch_size=1, num_micro_batches=passes),
        schedule=schedule or Schedule(name=judged.framework.schedules[0]),
        sharding=zero_sharding(zero_stage, replicas=mesh.replicas, framework=judged.framework),
        recompute=recompute if isinstance(recompute, tuple) else (recompute or Recompute(),),
        on_host=on_host,
        activations=activations,
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """A rule, the decisions of a layout that breaks it, what is said then, and decisions that keep it."""

    rule: str
    framework: str
    version: str | None = None
    model: str = DENSE
    broken: dict[str, Any]
    pointer: str
    nearest: object
    kept: dict[str, Any]
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def setting(self) -> Setting:
        """The setting that layouts are judged in."""
        return setting(
            model=self.model, framework=self.framework, version=self.version, num_devices=64, **self.given
        )

    def __str__(self) -> str:
        return f"{self.rule}, {self.framework} {self.version or ''}"


def breaks(case: Case, decisions: dict[str, Any]) -> list[Violation]:
    """Return what breaks the rule of a case in a layout of some decisions."""
    judged = case.setting
    layers = decisions.get("layers")
    others = {word: value for word, value in decisions.items() if word != "layers"}
    (rule,) = [rule for rule in RULES if rule.name == case.rule]
    assert rule in rules_of(judged.framework)
    return list(rule.check(Proposal(setting=judged, layout=layout(judged, **others), layers=layers)))


def check(case: Case) -> None:
    """Hold a case to what it says."""
    (violation,) = breaks(case, case.broken)
    assert violation.pointer == case.pointer
    assert case.nearest in violation.nearest_legal
    assert breaks(case, case.kept) == []
