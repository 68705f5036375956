"""The sizes of layers on the wire."""

from typing import Annotated

from pydantic import Field

from api.schemas.document import WholeNumber, one_of
from planner.workload.passes import Norm

Size = Annotated[int, WholeNumber, Field(ge=1, le=10**9)]
SizeOrNone = Annotated[int, WholeNumber, Field(ge=0, le=10**9)]
Extent = Annotated[int, WholeNumber, Field(ge=0, le=10**15)]
"""Elements, bytes, parameters or FLOP of one traced layer."""
KnownNorm = Annotated[Norm, one_of(Norm)]
