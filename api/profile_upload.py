"""A profile document taken into the store: good rows are kept, bad ones refused with reasons."""

import json
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy.exc import DataError

from api.schemas.catalogue import RefusedRowDocument, StoredProfileDocument
from api.schemas.problem import FaultDocument, ProblemDocument
from api.stores.profiles import BuiltInProfileError, ProfileStore, profile_digest
from planner.calibration import check_calibration
from planner.errors import InvalidRequest
from planner.profile import Profile
from planner.profile_document import RefusedRow

MAX_TOLD: Final = 100
"""Refused rows that an answer repeats; a wrong unit may be in all of a million rows."""
ORIGIN_KEYS: Final = ("source", "licence")
"""What the store keeps of a document beside what the planner reads."""


class NotJsonError(ValueError):
    """Bytes that are no JSON document."""


class NothingAcceptedError(Exception):
    """A profile none of whose rows can be used."""

    def __init__(self, refused: tuple[RefusedRow, ...]) -> None:
        super().__init__("no measurement of the profile can be used")
        self.problem = ProblemDocument.of_faults(
            [FaultDocument(pointer=row.pointer, detail=row.reason) for row in refused[:MAX_TOLD]]
            or [FaultDocument(pointer="", detail="the profile has no measurements")]
        )


def parse_json(body: bytes) -> Any:  # noqa: ANN401 - whatever JSON says
    """Return what a JSON text says; NotJsonError with the position where it is none."""
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        raise NotJsonError(f"this is not JSON: {error.msg} at character {error.pos}") from error
    except (ValueError, RecursionError) as error:
        raise NotJsonError(f"this is not JSON that can be read: {error}") from error


def store_profile(document: Mapping[str, Any], *, profiles: ProfileStore) -> StoredProfileDocument:
    """Keep the good rows of a profile; the same document again changes nothing.

    Raises InvalidRequest for a document that is no profile, or has the name of a built-in one, and
    NothingAcceptedError where no row is good.
    """
    profile, refused = _read(document)
    if profile.num_rows == 0 and not check_calibration(profile):
        raise NothingAcceptedError(refused)
    origin = {key: document[key] for key in ORIGIN_KEYS if isinstance(document.get(key), str)}
    kept = profile.to_document() | origin
    digest = profile_digest(kept)
    is_new = all(summary.digest != digest for summary in profiles.summaries(device=profile.device))
    try:
        profiles.add(kept)
    except BuiltInProfileError as error:
        raise InvalidRequest(str(error), pointer="/name") from error
    except DataError as error:
        raise InvalidRequest("a number is larger than the database can keep", pointer="") from error
    return StoredProfileDocument(
        name=profile.name,
        device=profile.device,
        digest=digest,
        is_new=is_new,
        num_accepted=profile.num_rows,
        num_refused=len(refused),
        refused=tuple(
            RefusedRowDocument(pointer=row.pointer, detail=row.reason) for row in refused[:MAX_TOLD]
        ),
    )


def _read(document: object) -> tuple[Profile, tuple[RefusedRow, ...]]:
    if not isinstance(document, Mapping):
        raise InvalidRequest("a profile is an object", pointer="")
    for key in ("name", "device"):
        text = document.get(key)
        if isinstance(text, str) and not text.isprintable():
            raise InvalidRequest(f"{key} may only have printable characters", pointer=f"/{key}")
    profile, refused = Profile.read({key: value for key, value in document.items() if key not in ORIGIN_KEYS})
    _check_is_json(document)
    return profile, refused


def _check_is_json(document: Mapping[str, Any]) -> None:
    """Refuse NaN and infinities among the facts, which are kept as they are."""
    for key in ("software", "facts"):
        try:
            json.dumps(document.get(key), allow_nan=False, ensure_ascii=False).encode()
        except ValueError as error:
            raise InvalidRequest("holds what JSON does not have", pointer=f"/{key}") from error
