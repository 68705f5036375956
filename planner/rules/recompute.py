"""What a framework can compute again in backward."""

from collections.abc import Iterator
from typing import Final

from planner.framework import Framework
from planner.names import nearest_names
from planner.rules.rule import Part, Proposal, Rule
from planner.strategy import RecomputeMode, Violation


def _modes(framework: Framework) -> list[str]:
    """Return the modes of a framework, those that compute least again first."""
    has = {option.mode for option in framework.recompute}
    return [mode.value for mode in RecomputeMode if mode in has]


def _modes_words(framework: Framework) -> str | None:
    modes = _modes(framework)
    return None if len(modes) == len(RecomputeMode) else f"recompute is {' or '.join(modes)}"


def _check_modes(proposal: Proposal) -> Iterator[Violation]:
    legal = _modes(proposal.framework)
    for option in proposal.layout.recompute:
        if option.mode not in legal:
            yield Violation(
                pointer="/plan/recompute",
                rule=f"{proposal.who} has no {option.mode} recomputation",
                nearest_legal=tuple(legal),
            )


def _is_selective(framework: Framework) -> bool:
    return RecomputeMode.SELECTIVE in _modes(framework)


def _modules_words(framework: Framework) -> str | None:
    names = framework.limits.recompute_modules
    return f"selective recomputation is of {', '.join(names)}" if _is_selective(framework) else None


def _modules(proposal: Proposal) -> Iterator[Violation]:
    limits = proposal.framework.limits
    names = [name for option in proposal.layout.recompute for name in _selected(option.mode, option.modules)]
    for name in names:
        if limits.module(name) is None and _is_selective(proposal.framework):
            known = (*limits.recompute_modules, *limits.recompute_modules.values())
            yield Violation(
                pointer="/plan/recompute",
                rule=f"{proposal.who} recomputes no module {name!r} on its own",
                nearest_legal=nearest_names(name, known) or tuple(limits.recompute_modules),
            )


def _selected(mode: RecomputeMode, modules: tuple[str, ...]) -> tuple[str, ...]:
    return modules if mode is RecomputeMode.SELECTIVE else ()


_RECOMPUTE: Final = frozenset({Part.RECOMPUTE})
RULES: Final = (
    Rule(name="recompute-modes", parts=_RECOMPUTE, words=_modes_words, check=_check_modes),
    Rule(name="recompute-modules", parts=_RECOMPUTE, words=_modules_words, check=_modules),
)
