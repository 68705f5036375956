"""The ways to split attention over context parallel that each mesh leaves open."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from planner.context_schemes import inner_degrees, scheme_violations, sequence_pieces
from planner.framework_rules import broken
from planner.rules import context
from planner.rules.rule import Proposal
from planner.search.space import MESHED, ONE_SAMPLE, Space, bare
from planner.strategy import ContextParallelScheme, Mesh

FRUGAL_FIRST: Final = (
    ContextParallelScheme.RING,
    ContextParallelScheme.ALL_GATHER,
    ContextParallelScheme.ALL_TO_ALL,
    ContextParallelScheme.MIXED,
)
"""By what they save for backward: those that trade heads keep the core's output twice."""
Way = tuple[ContextParallelScheme, int]
"""A scheme and the ranks of its inner all-to-all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schemes:
    """The legal schemes of a space's meshes: the same for all of equal tensor and context parallel."""

    space: Space
    _known: dict[tuple[int, int], tuple[Way, ...]] = field(default_factory=dict, init=False)

    def on(self, mesh: Mesh) -> tuple[Mesh, ...]:
        """Return a mesh with each legal scheme, the one that saves least for backward first."""
        key = (mesh.tensor_parallel, mesh.context_parallel)
        if key not in self._known:
            self._known[key] = tuple(self._legal(*key))
        return tuple(
            mesh
            if (scheme, degree) == (mesh.context_parallel_scheme, mesh.all_to_all_degree)
            else replace(mesh, context_parallel_scheme=scheme, all_to_all_degree=degree)
            for scheme, degree in self._known[key]
        )

    def _legal(self, tensor: int, context_parallel: int) -> Iterator[Way]:
        setting = self.space.setting
        for scheme in self._named(context_parallel):
            is_mixed = scheme is ContextParallelScheme.MIXED
            for degree in inner_degrees(context_parallel) if is_mixed else (1,):
                mesh = Mesh(
                    tensor_parallel=tensor,
                    context_parallel=context_parallel,
                    context_parallel_scheme=scheme,
                    all_to_all_degree=degree,
                )
                if not self.space.allowed("all_to_all_degree", degree):
                    continue
                comes_out = all(length % sequence_pieces(mesh) == 0 for length in setting.sequence_lengths)
                if comes_out and next(scheme_violations(setting, mesh), None) is None and self._runs(mesh):
                    yield scheme, degree

    def _named(self, context_parallel: int) -> tuple[ContextParallelScheme, ...]:
        """Return the schemes to consider; without attention to split they all come to the same."""
        chosen = self.space.fixed("context_parallel_scheme")
        if chosen is not None:
            return tuple(scheme for scheme in FRUGAL_FIRST if scheme == chosen)
        own = self.space.setting.framework.limits.context_parallel_schemes
        if context_parallel == 1:
            return FRUGAL_FIRST[:1]
        if not self.space.setting.split_attention:
            return own[:1]
        return tuple(scheme for scheme in FRUGAL_FIRST if scheme in own)

    def _runs(self, mesh: Mesh) -> bool:
        """Whether the framework splits attention so; what else a mesh has is judged with the whole mesh."""
        rules = [rule for rule in self.space.rules[MESHED] if rule in context.SCHEME_RULES]
        return not broken(rules, Proposal(setting=self.space.setting, layout=bare(mesh, ONE_SAMPLE)))
