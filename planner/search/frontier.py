"""What a search has still to open, lowest bound first; what says little waits until the rest is settled."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from planner.cost.pipeline import PipelineProblem
from planner.search.mesh_floors import MeshFloor, MeshNode, TimedMesh
from planner.search.offloading import Chain
from planner.search.placings import Placing
from planner.strategy import Layout, Mesh, ScheduleName

LITTLE: Final = 1.15
"""By how much a bound that says little mostly lies below the plan that it bounds."""


@dataclass(kw_only=True, slots=True)
class Variant:
    """A layout with its problem: of any schedule, or as a leaf with its own.

    ``ways`` are its mesh with every way to split attention, while that is open. ``apart`` tells the schedules
    that make gradients of weights apart from all others.
    """

    layout: Layout
    problem: PipelineProblem
    ways: tuple[Mesh, ...] = ()
    apart: bool = False
    is_leaf: bool = False
    is_raised: bool = False
    """Whether its bound, as a leaf, tells what filling its stages takes."""
    tries: int = 0
    placings: tuple[Placing, ...] = ()
    """Ways to number the ranks and to group replicas, the layout's own first, while that is open."""
    chain: Chain = ()
    """Ways to keep more and more on the host; the problem is no slower and no larger than any of them."""

    @property
    def says_little(self) -> bool:
        """Whether its bound leaves out much: a mixed chain over several chunks fills and drains unevenly."""
        several = self.problem.shape.virtual_stages > 1 and not self.problem.shape.schedule.splits_backward
        return self.is_leaf and several and not self.problem.is_uniform

    @property
    def comes_later(self) -> bool:
        """Whether its bound says less than those of schedules that alternate passes."""
        return self.apart or self.layout.schedule.name is ScheduleName.BREADTH_FIRST


Content = TimedMesh | MeshNode | MeshFloor | Variant
"""What can be opened."""


@dataclass(order=True, slots=True)
class Node:
    """Something to open, and a step time that no plan in it undercuts."""

    bound_ns: int
    number: int
    content: Content = field(compare=False)


class Frontier:
    """The nodes of a search that are not looked at yet: those that are open, and those that wait."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._numbers = count()
        self._open: list[Node] = []
        self._put_off: list[Node] = []
        self._apart: list[Node] | None = []
        """Layouts of breadth-first and zero-bubble schedules, until all others are settled.

        Their bounds say less: with a good plan known they are ruled out sooner. None once they are open.
        """
        self._apart_ns: tuple[int, ...] = ()
        self._later: list[Node] | None = []
        """Layouts whose bounds say little, until those of others are higher. None once they are open."""
        self._later_ns: tuple[int, ...] = ()

    def __len__(self) -> int:
        """Count the nodes that are open."""
        return len(self._open)

    def push(self, bound_ns: int, content: Content) -> None:
        """Add something to look at, which may wait."""
        node = Node(bound_ns, next(self._numbers), content)
        if self._apart is not None and isinstance(content, Variant) and content.comes_later:
            self._apart.append(node)
            self._apart_ns = (min((bound_ns, *self._apart_ns)),)
        elif self._later is not None and isinstance(content, Variant) and content.says_little:
            self._later.append(node)
            self._later_ns = (min((bound_ns, *self._later_ns)),)
        else:
            heapq.heappush(self._open, node)

    def put_off(self, node: Node) -> None:
        """Keep a node for another try, when nothing else is left."""
        self._put_off.append(node)

    def pop(self) -> Node:
        """Take out the open node with the lowest bound."""
        return heapq.heappop(self._open)

    @property
    def lowest_ns(self) -> tuple[int, ...]:
        """The lowest bound of what is open, none where nothing is."""
        return (self._open[0].bound_ns,) if self._open else ()

    @property
    def waiting_ns(self) -> tuple[int, ...]:
        """The lowest bounds of what waits for others to be settled, but for what was tried before."""
        return (*self._later_ns, *self._apart_ns)

    @property
    def left_ns(self) -> list[int]:
        """Bounds among which is the lowest of all that is left."""
        return [*self.lowest_ns, *(node.bound_ns for node in self._put_off), *self.waiting_ns]

    def is_late(self, lowest_ns: int) -> bool:
        """Whether bounds are so high that layouts whose bounds say little are looked at too."""
        return any(lowest_ns > LITTLE * bound for bound in self._later_ns)

    def bring_back(self, push: Callable[[int, Content], None]) -> bool:
        """Push what waits longest for what is settled now, and say whether there was any."""
        if self._later:
            again, self._later, self._later_ns = self._later, None, ()
        elif self._apart:
            again, self._apart, self._apart_ns = self._apart, None, ()
        else:
            again, self._put_off = self._put_off, []
        for node in again:
            push(node.bound_ns, node.content)
        return bool(again)
