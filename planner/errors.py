"""Everything that can go wrong in the planner, as one small tree; each error carries its facts."""

from collections.abc import Sequence


class PlannerError(Exception):
    """Base of every error that the planner raises for its callers."""


class InvalidRequest(PlannerError):  # noqa: N818 - reads as what happened, as in the style guide
    """A request that cannot be planned: the field at fault, what is wrong, and what would be legal.

    ``pointer`` is a JSON pointer into the request document; ``nearest_legal`` lists the legal
    values or names nearest to what was given, best first.
    """

    def __init__(self, message: str, *, pointer: str, nearest_legal: Sequence[object] = ()) -> None:
        """Keep the message, the JSON pointer and the nearest legal values."""
        super().__init__(message)
        self.message = message
        self.pointer = pointer
        self.nearest_legal = tuple(nearest_legal)


class UnknownName(InvalidRequest):
    """A name (model, cluster, device, framework, profile) that nothing has; nearest names given."""


class AmbiguousName(InvalidRequest):
    """A name that several things have ("A100"); the choices are in ``nearest_legal``."""


class IllegalChoice(InvalidRequest):
    """A fixed choice or bound that the model, the cluster or the framework rules out."""


class MissingMeasurements(PlannerError):  # noqa: N818 - as above
    """No measurement and no datasheet figure answers for what a plan needs on a device."""

    def __init__(self, message: str, *, device: str) -> None:
        """Keep the message and the device that lacks figures."""
        super().__init__(message)
        self.message = message
        self.device = device
