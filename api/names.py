"""Names in paths that nothing has."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from api.schemas.problem import ProblemDocument
from planner.errors import AmbiguousName, UnknownName


class NameNotFoundError(Exception):
    """A path whose last part names nothing, or several things; the problem gives the nearest names."""

    def __init__(self, error: UnknownName | AmbiguousName) -> None:
        super().__init__(error.message)
        self.problem = ProblemDocument.of_status(HTTPStatus.NOT_FOUND, error.message).model_copy(
            update={"nearest_legal": tuple(error.nearest_legal)}
        )


@contextmanager
def found(name: str) -> Iterator[None]:
    """Answer with 404 where ``name``, the name in the path, is unknown or ambiguous inside."""
    if not name.isprintable():
        raise NameNotFoundError(UnknownName("names have printable characters only", pointer=""))
    try:
        yield
    except (UnknownName, AmbiguousName) as error:
        raise NameNotFoundError(error) from error
