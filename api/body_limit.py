"""How much of a request is read: a larger body is refused while it comes in, and never kept."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from planner.units import MEBIBYTE, format_bytes

MAX_DISCARDED_BYTES: Final = 512 * MEBIBYTE
"""What is read on and thrown away, as many clients look at the answer only after they have sent all."""

LimitOf = Callable[[str], int]
"""The largest body, in bytes, of requests to a path."""


class BodyLimitMiddleware:
    """Refuses bodies larger than a path takes with 413, whatever their length claims to be."""

    def __init__(self, app: ASGIApp, *, limit_of: LimitOf) -> None:
        """Wrap an application."""
        self._app = app
        self._limit_of = limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, its body counted as it is read."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit_bytes = self._limit_of(scope["path"])
        await self._app(scope, _limited(receive, limit_bytes, claimed=_claimed_bytes(scope)), send)


def _limited(receive: Receive, limit_bytes: int, *, claimed: int) -> Receive:
    """Return a ``receive`` that raises once more has come in, or was announced, than the limit."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if max(received, claimed) > limit_bytes:
            await _discard(receive, message, received=received)
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body is larger than the {format_bytes(limit_bytes)} that are read here",
            )
        return message

    return limited


async def _discard(receive: Receive, message: Message, *, received: int) -> None:
    """Read what the client still sends, up to a limit of its own, and keep nothing of it."""
    while message.get("more_body", False) and received <= MAX_DISCARDED_BYTES:
        message = await receive()
        received += len(message.get("body", b""))


def _claimed_bytes(scope: Scope) -> int:
    """Return the length that a request announces, 0 where it says none or nonsense."""
    claimed = Headers(scope=scope).get("content-length", "")
    return int(claimed) if claimed.isdecimal() and len(claimed) < len(str(2**63)) else 0
