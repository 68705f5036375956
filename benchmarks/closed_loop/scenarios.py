"""What the loop runs: so many ranks joined by a link, and the models that they train."""

from dataclasses import dataclass
from typing import Final

from benchmarks.closed_loop.models import Model
from benchmarks.closed_loop.network import (
    GIGABIT,
    HUNDRED_MEGABIT,
    LOOPBACK,
    TEN_GIGABIT,
    Link,
)

SMALL: Final = Model(name="narrow", width=128, depth=4, sequence_length=64, global_batch_size=8)
WIDE: Final = Model(name="wide", width=384, depth=2, sequence_length=64, global_batch_size=8)
DEEP: Final = Model(name="deep", width=192, depth=8, sequence_length=32, global_batch_size=8)
LONG: Final = Model(name="long", width=128, depth=2, sequence_length=512, global_batch_size=4)

THIRDS: Final = Model(
    name="thirds", width=192, depth=3, sequence_length=64, global_batch_size=6, heads=6, vocabulary=768
)
"""What three ranks divide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """Ranks, their link, and what is trained on them."""

    ranks: int
    link: Link
    models: tuple[Model, ...]
    only: frozenset[str] = frozenset()
    """The plans to run, in their words, however long they take; where none is named, all that are legal."""

    @property
    def name(self) -> str:
        """The place in a few words."""
        return "1 rank" if self.ranks == 1 else f"{self.ranks} ranks, {self.link.name}"

    @property
    def slug(self) -> str:
        """The name of a folder."""
        return self.name.replace(",", "").replace(" ", "-").lower()


WHOLE: Final = (
    Scenario(ranks=1, link=LOOPBACK, models=(SMALL, WIDE, DEEP, LONG)),
    Scenario(ranks=2, link=LOOPBACK, models=(SMALL, WIDE, DEEP, LONG)),
    Scenario(ranks=2, link=TEN_GIGABIT, models=(SMALL,)),
    Scenario(ranks=2, link=GIGABIT, models=(SMALL, WIDE)),
    Scenario(ranks=2, link=HUNDRED_MEGABIT, models=(SMALL,)),
    Scenario(ranks=3, link=TEN_GIGABIT, models=(THIRDS,)),
    Scenario(ranks=4, link=TEN_GIGABIT, models=(SMALL,)),
    Scenario(ranks=4, link=HUNDRED_MEGABIT, models=(SMALL,)),
)
QUICK: Final = (
    Scenario(ranks=2, link=LOOPBACK, models=(SMALL,)),
    Scenario(ranks=2, link=HUNDRED_MEGABIT, models=(SMALL,)),
)
UNSHAPED: Final = (Scenario(ranks=2, link=LOOPBACK, models=(SMALL,)),)
"""Needs no rights of root."""
FEW: Final = (
    Scenario(
        ranks=2,
        link=LOOPBACK,
        models=(SMALL,),
        only=frozenset(
            {
                "DP 2, ZeRO 0, 2 x 2",
                "DP 2, ZeRO 3, 2 x 2",
                "DP 2, ZeRO 3, 4 x 1, recompute full",
                "PP 2 1f1b, 2 x 4",
                "PP 2 gpipe, 4 x 2, recompute full",
                "TP 2, 2 x 4",
                "TP 2, SP, 8 x 1, recompute full",
            }
        ),
    ),
)
"""Of every kind one or two, quick and slow ones."""
