"""A rule of a framework: what must hold, whom it binds, what breaks it, and what then happens."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from planner.framework import Framework
from planner.setting import Setting
from planner.strategy import Layout, Violation


class Part(StrEnum):
    """A part of a layout that rules read."""

    MESH = "mesh"
    REPLICAS = "replicas"
    """The degrees of data and context parallelism alone."""
    BATCH = "batch"
    SCHEDULE = "schedule"
    SHARDING = "sharding"
    RECOMPUTE = "recompute"
    OFFLOAD = "offload"
    LAYERS = "layers"


class Outcome(StrEnum):
    """What the framework does with a plan that breaks a rule.

    One that it accepts does something else than the plan says, so it is as illegal as one that it
    refuses: an answer that looks right would be worse than none.
    """

    REFUSED = "refused"
    SILENT = "accepted, and wrong"


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """What a rule judges; ``layers`` are the numbers of layers of the chunks, where they are known."""

    setting: Setting
    layout: Layout
    layers: tuple[int, ...] | None = None

    @property
    def framework(self) -> Framework:
        """The framework that would run it."""
        return self.setting.framework

    @property
    def who(self) -> str:
        """The framework and the release, as a violation names them."""
        return f"{self.framework.name} {self.framework.version}".strip()


Check = Callable[[Proposal], Iterator[Violation]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """``words`` say what must hold in a framework, None where the rule does not bind it.

    ``check`` yields what breaks it, with the legal values nearest to what was given. It may read the
    named ``parts`` of a proposal and no others, so that a search can ask as soon as those are decided: one
    that reads none before it begins.
    """

    name: str
    parts: frozenset[Part]
    words: Callable[[Framework], str | None]
    check: Check
    outcome: Callable[[Framework], Outcome] = lambda _framework: Outcome.REFUSED

    def binds(self, framework: Framework) -> bool:
        """Whether the framework has the rule."""
        return self.words(framework) is not None
