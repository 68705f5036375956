"""Templates made into responses, with the headers that keep a page to itself."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from api.version import VERSION

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Nothing from elsewhere runs or is loaded, and nothing frames a page; what was typed is stored nowhere."""

_TEMPLATES: Final = Environment(
    loader=PackageLoader("api"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page_response(
    template: str, *, here: str, status: HTTPStatus = HTTPStatus.OK, **context: object
) -> HTMLResponse:
    """Return a template as a page; ``here`` is the path that the navigation marks."""
    content = _TEMPLATES.get_template(template).render(here=here, version=VERSION, **context)
    # Half characters, which an unknown name may hold, are not in UTF-8.
    return HTMLResponse(content.encode("utf-8", "replace"), status_code=status, headers=HEADERS)
