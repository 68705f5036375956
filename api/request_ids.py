"""The id of the request that is being answered: in the log, in a header, in every problem."""

import logging
import re
from contextvars import ContextVar
from typing import Final
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER: Final = "X-Request-Id"

_ACCEPTABLE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str | None] = ContextVar("request_id", default=None)


def current_request_id() -> str | None:
    """Return the id of the request that this code works on, None outside of requests."""
    return _current.get()


class RequestIdMiddleware:
    """Gives each request an id, the caller's own where it has an acceptable one."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the id in a header."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _id_from(Headers(scope=scope).get(HEADER))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        token = _current.set(request_id)
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            _current.reset(token)


class RequestIdFilter(logging.Filter):
    """Adds the id to every record of the log, as ``request_id``."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record."""
        record.request_id = current_request_id() or "-"
        return True


def _id_from(given: str | None) -> str:
    return given if given is not None and _ACCEPTABLE.fullmatch(given) else uuid4().hex
