"""JSON documents that a command is given: as files, as standard input, as text in options."""

import json
import sys
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.cli.outcome import ProblemError
from api.profile_upload import NotJsonError, parse_json
from api.schemas.faults import faults_in
from api.schemas.problem import FaultDocument, ProblemDocument

STANDARD_INPUT = "-"

Document = TypeVar("Document", bound=BaseModel)


def read_json(path: str) -> Any:  # noqa: ANN401 - whatever JSON says
    """Return what a file, or standard input for ``-``, says; ProblemError where it cannot be read."""
    try:
        content = sys.stdin.buffer.read() if path == STANDARD_INPUT else Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    try:
        return parse_json(content)
    except NotJsonError as error:
        raise _unreadable(path, str(error)) from error


def validated(schema: type[Document], document: object) -> Document:
    """Return a document as its schema reads it; ProblemError with every field at fault."""
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        faults = faults_in(error, document=document, schema=schema)
        raise ProblemError(ProblemDocument.of_faults(faults)) from error


def value_from(text: str) -> Any:  # noqa: ANN401 - whatever JSON says
    """Return what a text says as JSON, or the text itself where it is none: 8, true, full."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def bad_option(option: str, detail: str) -> ProblemError:
    """Return the error of an option that cannot be understood."""
    return ProblemError(ProblemDocument.of_faults([FaultDocument(pointer=option, detail=detail)]))


def _unreadable(path: str, reason: str) -> ProblemError:
    name = "standard input" if path == STANDARD_INPUT else path
    return ProblemError(ProblemDocument.of_faults([FaultDocument(pointer="", detail=f"{name}: {reason}")]))
