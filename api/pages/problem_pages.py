"""Problems as pages: what a browser gets where a program gets a problem document."""

import json
from http import HTTPStatus
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.pages.rendering import page_response
from api.schemas.problem import MEDIA_TYPE

FOR_PROGRAMS: Final = "/v1/"
KEPT_HEADERS: Final = (b"x-request-id", b"retry-after", b"allow")


class ProblemPagesMiddleware:
    """Answers a browser with a page where the application answers with a problem document."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; a problem is held back until it is whole."""
        if scope["type"] != "http" or not _wants_page(scope):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def send_page(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is None:
                await send(message)
            elif message["type"] == "http.response.body":
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await _send_problem(scope, receive, send, start=start, problem=json.loads(body))

        await self._app(scope, receive, send_page)


def _wants_page(scope: Scope) -> bool:
    accepted = Headers(scope=scope).get("accept", "")
    return "text/html" in accepted and not scope["path"].startswith(FOR_PROGRAMS)


def _is_problem(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith(MEDIA_TYPE)


async def _send_problem(
    scope: Scope, receive: Receive, send: Send, *, start: Message, problem: dict[str, Any]
) -> None:
    response = page_response("problem.html", here="", status=HTTPStatus(start["status"]), problem=problem)
    for name, value in start["headers"]:
        if name.lower() in KEPT_HEADERS:
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
    await response(scope, receive, send)
