"""The sets of modules that selective recomputation is worth trying with.

Where a framework recomputes all layers alike, one set holds for a whole plan. Layouts are opened with all
sets at once, as if each layer had its choice: no single set is quicker or smaller. Only what that cannot rule
out is parted into fewer and fewer sets, the quicker and the slower ones, down to single ones.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Final

from planner.cost.layer import recomputed_modules
from planner.cost.model import CostModel
from planner.cost.pipeline import PipelineProblem
from planner.job import AttentionKind
from planner.legality import missing_modules
from planner.search.offloading import Chain, chained_problem
from planner.setting import Setting
from planner.strategy import Layout, Recompute, RecomputeMode
from planner.workload.layers import Cut, Layer
from planner.workload.operators import Module, Operator
from planner.workload.recomputation import NOTHING, kept_tensors, recomputed_operators, with_parts

MOST_KNOWN: Final = 64
"""Answers that are kept."""

Place = tuple[int, int]
"""A class of layers and an operator of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Effect:
    """What a set of modules does to the layers of every class, whatever their sizes."""

    kept: frozenset[tuple[Place, str]]
    again: frozenset[Place]

    def beats(self, other: "_Effect") -> bool:
        """Whether it keeps no tensor and runs no operator again that the other does not."""
        return self.kept <= other.kept and self.again <= other.again


def module_sets(setting: Setting, *, is_fixed: bool = False) -> tuple[Recompute, ...]:
    """Return selective recomputation of the sets of modules that no other makes needless, small ones first.

    A set is needless where another one, or no recomputation, keeps no tensor beside those that it keeps and
    runs no operator again beside those that it does: that costs no more time and no more memory on any mesh.
    Sets of which one holds a module within another's are the same. A fused attention core is left out: it
    saves two numbers per token and head. Where the caller has it ``is_fixed`` that some modules run again,
    the core may be one of them, and there is no plan without any to beat a set.
    """
    job, framework = setting.job, setting.framework
    names = dict.fromkeys(Module(name) for name in framework.limits.recompute_modules.values())
    if job.attention is AttentionKind.FLASH and not is_fixed:
        names.pop(Module.CORE_ATTENTION, None)
    cut = Cut(
        micro_batch_size=1,
        sequence_length=job.sequence_length or 1,
        attention=job.attention,
        keeping=framework.keeping(job.precision),
    )
    return _sets(
        tuple(tuple(unit) for unit in setting.body.classes),
        cut,
        names=tuple(name for name in names if not missing_modules(setting, _selective([name]))),
        rivals=() if is_fixed else (NOTHING,),
        saves_gathered=framework.saves_gathered_inputs,
    )


@lru_cache(maxsize=MOST_KNOWN)
def _sets(
    classes: tuple[tuple[Layer, ...], ...],
    cut: Cut,
    *,
    names: tuple[Module, ...],
    rivals: tuple[frozenset[Module], ...],
    saves_gathered: bool,
) -> tuple[Recompute, ...]:
    operators = {
        number: tuple(op for layer in unit for op in layer.operators(cut))
        for number, unit in enumerate(classes)
    }
    present = {op.module for each in operators.values() for op in each}
    found: dict[frozenset[Module], tuple[Module, ...]] = {}
    for chosen in _subsets(names):
        # Smaller sets come first: of sets that run the same modules the shortest is named.
        found.setdefault(with_parts(chosen) & present, chosen)
    if not saves_gathered:
        found = _undominated(found, operators, rivals)
    return tuple(_selective(chosen) for chosen in found.values())


def _selective(modules: Iterable[Module]) -> Recompute:
    return Recompute(mode=RecomputeMode.SELECTIVE, modules=tuple(module.value for module in modules))


def _subsets(names: Sequence[Module]) -> Iterator[tuple[Module, ...]]:
    """Yield every set of modules but the empty one, small ones first."""
    for size in range(1, len(names) + 1):
        yield from combinations(names, size)


def _undominated(
    found: Mapping[frozenset[Module], tuple[Module, ...]],
    operators: Mapping[int, Sequence[Operator]],
    rivals: Iterable[frozenset[Module]],
) -> dict[frozenset[Module], tuple[Module, ...]]:
    effects = {modules: _effect(operators, modules) for modules in found}
    before = [_effect(operators, modules) for modules in rivals]
    left = {}
    for modules, chosen in found.items():
        own = effects[modules]
        further = (other for other, effect in effects.items() if effect != own)
        if not any(known.beats(own) for known in before) and not any(
            effects[other].beats(own) for other in further
        ):
            left[modules] = chosen
            before.append(own)
    return left


def _effect(operators: Mapping[int, Sequence[Operator]], modules: Iterable[Module]) -> _Effect:
    chosen = frozenset(modules)
    places = [((number, place), op) for number, each in operators.items() for place, op in enumerate(each)]
    return _Effect(
        kept=frozenset(
            (place, tensor.name) for place, op in places for tensor in kept_tensors([op], recompute=chosen)
        ),
        again=frozenset(place for place, op in places if recomputed_operators([op], recompute=chosen)),
    )


@lru_cache(maxsize=MOST_KNOWN)
def quickest(modes: tuple[Recompute, ...]) -> tuple[Recompute, ...]:
    """Return modes of which one is the quickest of all: what runs more again is no quicker."""
    each = {mode: with_parts(recomputed_modules(mode)) for mode in modes}
    return tuple(mode for mode, own in each.items() if not any(other < own for other in each.values()))


def halves(
    model: CostModel, layout: Layout, problem: PipelineProblem, chain: Chain
) -> Iterator[tuple[Layout, PipelineProblem, Chain]]:
    """Yield a layout of several modes with the quicker half of those worth having, and with the rest.

    Each with its problem and chain; that of several modes is no slower and no larger than that of any.
    """
    left = undominated(problem)
    middle = (len(left) + 1) // 2
    for numbers in filter(None, (left[:middle], left[middle:])):
        modes = tuple(layout.recompute[number] for number in numbers)
        ways = tuple(replace(way, recompute=modes) for way in chain)
        half = replace(layout, recompute=modes)
        if len(modes) == 1:
            yield half, chained_problem(model, half, ways), ways
        else:
            yield half, _restricted(problem, numbers), ways


def _restricted(problem: PipelineProblem, numbers: Sequence[int]) -> PipelineProblem:
    """Return a problem whose layers have some of their options left."""
    classes = (
        replace(layers, options=tuple(layers.options[number] for number in numbers))
        for layers in problem.classes
    )
    return replace(problem, classes=tuple(classes))


def undominated(problem: PipelineProblem) -> tuple[int, ...]:
    """Return the options of which, used for all layers, none is quicker and smaller; quickest first.

    One makes another needless where in every class of layers it takes no longer in either pass, keeps no
    more, and keeps and works on no more together. In a chunk's backward pass what the layer at work keeps is
    still there, so that a stage holds a sum of what layers keep, and of what one keeps and works on together:
    a whole plan then holds no more. Nor are its updates longer, which wait for what reductions took beside
    backward passes.
    """
    counts = Counter(problem.sequence)

    def total_ns(number: int) -> int:
        options = [(counts[own], layers.options[number]) for own, layers in enumerate(problem.classes)]
        return sum(count * (option.forward_ns + option.backward_ns) for count, option in options)

    left: list[int] = []
    for number in sorted(range(len(problem.classes[0].options)), key=total_ns):
        if not any(_makes_needless(problem, known, number) for known in left):
            left.append(number)
    return tuple(left)


def _makes_needless(problem: PipelineProblem, known: int, number: int) -> bool:
    return all(
        own.forward_ns <= other.forward_ns
        and own.backward_ns <= other.backward_ns
        and own.saved_bytes <= other.saved_bytes
        and own.saved_bytes + own.working_bytes <= other.saved_bytes + other.working_bytes
        for own, other in ((layers.options[known], layers.options[number]) for layers in problem.classes)
    )
