"""What a search may choose: the words that it decides, the caller's constraints, the framework's rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from planner.errors import IllegalChoice, InvalidRequest
from planner.framework import Framework, Grain
from planner.framework_rules import broken, decided_by, rules_of
from planner.job import Constraints
from planner.names import nearest_names
from planner.rules.rule import Part, Proposal, Rule
from planner.setting import (
    Setting,
)
from planner.strategy import (
    Batch,
    Layout,
    Mesh,
    Recompute,
    Schedule,
    Sharding,
)

SEARCHED: Final = (
    "data_parallel",
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "sequence_parallel",
    "micro_batch_size",
    "num_micro_batches",
    "schedule",
    "virtual_stages",
    "zero_stage",
    "recompute",
    "expert_parallel",
    "expert_tensor_parallel",
    "context_parallel_scheme",
    "all_to_all_degree",
    "rank_order",
    "gather_dtype",
    "reduce_dtype",
    "reshard_after_forward",
    "offload",
)
"""Words of the flat plan form that a search decides, or takes fixed."""
MOST_PASSES: Final = 4_000_000
"""Passes of a step, over all stages, beyond which a layout is not considered: none runs in practice."""
NOT_SEARCHED: Final[Mapping[str, object]] = {
    "expert_rank_order": None,
    "interleave_group_size": None,
    "sharding": None,
    "layers_per_stage": None,
}
"""Words that are left at one value (None: the default that follows from the rest)."""

NOTHING: Final[frozenset[Part]] = frozenset()
MESHED: Final = frozenset({Part.MESH, Part.REPLICAS})
BATCHED: Final = MESHED | {Part.BATCH}
SHARDED: Final = BATCHED | {Part.SHARDING, Part.RECOMPUTE}
OFFLOADED: Final = SHARDED | {Part.OFFLOAD}
SCHEDULED: Final = BATCHED | {Part.SCHEDULE}
WHOLE: Final = SHARDED | SCHEDULED
STEPS: Final = (NOTHING, MESHED, BATCHED, SHARDED, OFFLOADED, SCHEDULED, WHOLE)
"""What is decided after each step; a rule that reads parts of two steps could not be asked in time."""


ONE_SAMPLE: Final = Batch(micro_batch_size=1, num_micro_batches=1)


def bare(mesh: Mesh, batch: Batch) -> Layout:
    """Return a layout of which no more than mesh and batch is decided."""
    return Layout(mesh=mesh, batch=batch, schedule=Schedule(), sharding=Sharding(), recompute=())


def _rules_by_step(framework: Framework) -> Mapping[frozenset[Part], tuple[Rule, ...]]:
    """Return the rules that each step can ask and none before it could."""
    left = rules_of(framework)
    found = {}
    for step in STEPS:
        found[step] = decided_by(left, step)
        left = tuple(rule for rule in left if rule not in found[step])
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """The setting and the caller's constraints: which values each dimension may take."""

    setting: Setting
    constraints: Constraints
    num_devices: int
    looks_at_hosts: bool = False
    """Whether a search tries the hosts where the caller fixed nothing of them."""
    rules: Mapping[frozenset[Part], tuple[Rule, ...]] = field(init=False, compare=False, repr=False)
    """The rules that the framework adds, by the step of the search that can ask them first."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", _rules_by_step(self.setting.framework))

    @property
    def recomputes_alike(self) -> bool:
        """Whether all layers of a job have one mode of recomputation."""
        return self.setting.framework.recompute_grain is Grain.JOB

    def chooses_once(self, modes: tuple[Recompute, ...]) -> bool:
        """Whether one of several modes of recomputation is still to be chosen, for all layers of a job."""
        return self.recomputes_alike and len(modes) > 1

    def runs(self, layout: Layout, *, step: frozenset[Part]) -> bool:
        """Whether the framework runs a layout, as far as a step decides it."""
        rules = self.rules[step]
        return not rules or not broken(rules, Proposal(setting=self.setting, layout=layout))

    def allowed(self, word: str, value: float) -> bool:
        """Whether constraints let a dimension take a value."""
        fixed, bounds = self.constraints.fixed, self.constraints.bounds
        if word in fixed:
            return fixed[word] == value
        low, high = bounds.get(word, (value, value))
        return low <= value <= high

    def fixed(self, word: str) -> object | None:
        """Return the value that the caller fixed, or None."""
        return self.constraints.fixed.get(word)


def search_space(setting: Setting, constraints: Constraints) -> Space:
    """Return the space of a request.

    Raises InvalidRequest for words that no search can fix or bound, and IllegalChoice for a model that
    the framework does not train.
    """
    for section in ("fixed", "bounds"):
        for word in getattr(constraints, section):
            _check_word(word, section=section)
    space = Space(setting=setting, constraints=constraints, num_devices=setting.cluster.num_devices)
    nothing = Proposal(setting=setting, layout=bare(Mesh(), ONE_SAMPLE))
    for violation in broken(space.rules[NOTHING], nothing):
        raise IllegalChoice(violation.rule, pointer=violation.pointer, nearest_legal=violation.nearest_legal)
    return space


def _check_word(word: str, *, section: str) -> None:
    if word in SEARCHED:
        return
    pointer = f"/constraints/{section}/{word}"
    if word in NOT_SEARCHED:
        raise InvalidRequest(f"{word} is not searched yet and cannot be constrained", pointer=pointer)
    raise InvalidRequest(
        f"unknown decision {word!r}", pointer=pointer, nearest_legal=nearest_names(word, SEARCHED)
    )
