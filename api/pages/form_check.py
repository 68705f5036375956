"""Whether the service can answer what a form asks: the request that it means, or the faults by field."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from api.jobs.answering import check_time_limit, resolve
from api.pages.form_fields import Verb
from api.pages.form_request import WHOLE_FORM, Faults, FieldFault, faults_by_field, form_request
from api.pages.form_values import FormValues
from api.profile_library import ProfileLibrary
from api.schemas.faults import faults_in
from api.schemas.problem import FaultDocument
from api.schemas.request import AnyRequestDocument, EvaluationRequestDocument, PlanRequestDocument
from planner.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedForm:
    """A request that can be answered, or the faults that prevent it."""

    request: AnyRequestDocument | None
    faults: Faults


def checked(values: FormValues, *, verb: Verb, library: ProfileLibrary, most_seconds: float) -> CheckedForm:
    """Return the request of a form, read and resolved as the service does with any request."""
    said = form_request(values, verb=verb)
    request, found = _read(said.document, verb=verb, library=library, most_seconds=most_seconds)
    # A field that cannot be read is not missing besides.
    faults = {**faults_by_field(found, verb=verb), **said.unreadable}
    return CheckedForm(request=None if faults else request, faults=faults)


def problem_faults(problem: Mapping[str, Any] | None, *, verb: Verb) -> Faults:
    """Return the faults of a stored problem, by the field that each falls on."""
    if problem is None:
        return {}
    entries = problem.get("errors") or ()
    if not entries:
        return {WHOLE_FORM: (FieldFault(detail=str(problem["detail"])),)}
    return faults_by_field((FaultDocument.model_validate(entry) for entry in entries), verb=verb)


def _read(
    document: Mapping[str, Any], *, verb: Verb, library: ProfileLibrary, most_seconds: float
) -> tuple[AnyRequestDocument | None, list[FaultDocument]]:
    schema = EvaluationRequestDocument if verb is Verb.EVALUATE else PlanRequestDocument
    try:
        request = schema.model_validate(document)
        check_time_limit(request, most_seconds=most_seconds)
        resolve(request, library=library)
    except ValidationError as error:
        return None, faults_in(error, document=document, schema=schema)
    except InvalidRequest as error:
        nearest = tuple(error.nearest_legal)
        return None, [FaultDocument(pointer=error.pointer, detail=error.message, nearest_legal=nearest)]
    return request, []
