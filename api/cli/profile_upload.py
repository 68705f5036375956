"""A profile sent to a service: in chunks, each again where the network fails, none lost where it is away."""

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import click

from api.cli.outcome import ExitCode, ProblemError
from api.profile_chunks import Upload
from api.schemas.catalogue import StoredProfileDocument
from api.schemas.problem import FaultDocument, ProblemDocument
from planner.units import Seconds

PATH: Final = "/v1/profile-uploads"
WAITS: Final[tuple[Seconds, ...]] = (1.0, 2.0, 4.0, 8.0)
"""Between attempts, each twice as long: a service that is being restarted is back by then."""
TIMEOUT: Final[Seconds] = 120.0
"""The last answer comes when all rows are stored."""
WORTH_ANOTHER_TRY: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class ServiceAwayError(Exception):
    """A service that did not answer however often it was asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileClient:
    """Sends profiles to one service."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of every request: the place of the header that authenticates it."""
    waits: tuple[Seconds, ...] = WAITS
    sleep: Callable[[Seconds], None] = time.sleep

    def send(self, document: Mapping[str, Any]) -> StoredProfileDocument:
        """Send a profile document; what the service has of it already is not sent again.

        Raises ServiceAwayError where the service cannot be reached, ProblemError where it refuses.
        """
        upload = Upload.of(document)
        path = f"{PATH}/{upload.digest}"
        there = set(self._ask("GET", path)["chunks"])
        for number, body in enumerate(upload.chunks):
            if number not in there:
                self._ask("PUT", f"{path}/chunks/{number}", body)
        return StoredProfileDocument.model_validate(self._ask("POST", path, upload.head))

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """Return the answer to a request, asked again while the service is away."""
        reason = ""
        for wait in (*self.waits, None):
            try:
                return self._once(method, path, body)
            except urllib.error.HTTPError as error:
                if error.code not in WORTH_ANOTHER_TRY:
                    raise _refused(error) from error
                reason = f"it answered {error.code}"
            except (OSError, http.client.HTTPException) as error:
                reason = str(getattr(error, "reason", None) or str(error) or type(error).__name__)
            if wait is not None:
                self.sleep(wait)
        raise ServiceAwayError(f"{self.url} is away: {reason}")

    def _once(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", **self.headers}
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self.url.rstrip("/") + path, data=body, headers=headers, method=method
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - as above
            text = answer.read()
        found: dict[str, Any] = json.loads(text) if text else {}
        return found


def client_of(url: str) -> ProfileClient:
    """Return the client of a service; ProblemError for what is no address of one."""
    if not url.startswith(("http://", "https://")):
        raise _problem(f"{url!r} is no address of a service, such as http://planner:8000")
    return ProfileClient(url=url)


def send_or_say_how(document: Mapping[str, Any], *, name: str, client: ProfileClient) -> None:
    """Send a profile; where the service is away, say how to send it later by its name, and end so."""
    try:
        stored = client.send(document)
    except ServiceAwayError as error:
        click.echo(f"meshplan: {error}", err=True)
        click.echo("Nothing is lost; send it later:", err=True)
        click.echo(f"  meshplan profiles upload {name} --to {client.url}", err=True)
        sys.exit(ExitCode.UNAVAILABLE)
    state = "sent" if stored.is_new else "there already"
    click.echo(f"{stored.name} {state}: {stored.num_accepted} measurements of {stored.device}", err=True)
    for row in stored.refused:
        click.echo(f"refused {row.pointer}: {row.detail}", err=True)


def _refused(error: urllib.error.HTTPError) -> ProblemError:
    """Return what the service says is wrong with the profile."""
    try:
        return ProblemError(ProblemDocument.model_validate_json(error.read()))
    except ValueError:
        return _problem(f"the service answered {error.code}")


def _problem(detail: str) -> ProblemError:
    return ProblemError(ProblemDocument.of_faults([FaultDocument(pointer="", detail=detail)]))
