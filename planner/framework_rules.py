"""All rules of frameworks in one table, and what breaks them.

A rule that a framework answers with an error and one that it breaks in silence are alike here: no search
proposes such a plan, and an evaluation calls it illegal. `Rule.outcome` keeps the two apart for people.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from planner.framework import Framework
from planner.rules import (
    axes,
    communication,
    context,
    experts,
    layers,
    offload,
    pipeline,
    recompute,
    sharding,
)
from planner.rules.rule import Outcome, Part, Proposal, Rule
from planner.setting import Setting
from planner.strategy import Layout, Violation

RULES: Final[tuple[Rule, ...]] = (
    *axes.RULES,
    *context.RULES,
    *pipeline.RULES,
    *layers.RULES,
    *sharding.RULES,
    *communication.RULES,
    *experts.RULES,
    *recompute.RULES,
    *offload.RULES,
)
LAYOUT_PARTS: Final = frozenset(Part) - {Part.LAYERS}
"""What a layout says before its layers are placed."""


def rules_of(framework: Framework) -> tuple[Rule, ...]:
    """Return the rules that bind a framework in its release."""
    return tuple(rule for rule in RULES if rule.binds(framework))


def decided_by(rules: Iterable[Rule], parts: Collection[Part]) -> tuple[Rule, ...]:
    """Return the rules that read nothing but some parts."""
    return tuple(rule for rule in rules if rule.parts <= frozenset(parts))


def broken(rules: Iterable[Rule], proposal: Proposal) -> tuple[Violation, ...]:
    """Return what breaks rules, in their order."""
    return tuple(violation for rule in rules for violation in rule.check(proposal))


def framework_violations(setting: Setting, layout: Layout) -> tuple[Violation, ...]:
    """Return the framework's rules that a layout breaks, its layers aside."""
    rules = decided_by(rules_of(setting.framework), LAYOUT_PARTS)
    return broken(rules, Proposal(setting=setting, layout=layout))


def layer_violations(
    setting: Setting, layout: Layout, layers_per_chunk: tuple[int, ...] | None
) -> tuple[Violation, ...]:
    """Return the framework's rules that layers per chunk break; None for nothing said about them."""
    rules = [rule for rule in rules_of(setting.framework) if Part.LAYERS in rule.parts]
    return broken(rules, Proposal(setting=setting, layout=layout, layers=layers_per_chunk))


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleEntry:
    """A rule of a framework for people: what must hold, and what happens otherwise."""

    name: str
    words: str
    outcome: Outcome


def rule_table(framework: Framework) -> tuple[RuleEntry, ...]:
    """Return the rules of a framework in its release, in words."""
    return tuple(
        RuleEntry(name=rule.name, words=words, outcome=rule.outcome(framework))
        for rule in RULES
        if (words := rule.words(framework)) is not None
    )
