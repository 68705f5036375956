"""One service and one browser for all acceptance tests; a fresh window for each."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page

from tests.acceptance.running import running_browser, running_service

WIDTH, HEIGHT = 1280, 900


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the running service."""
    with running_service(tmp_path_factory.mktemp("service")) as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser."""
    with running_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A window in which nothing may go wrong unseen: no error of a script, nothing that the policy blocks."""
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        # The browser tells of every answer that is an error; those are what some tests want.
        if message.type == "error" and "status of 4" not in message.text:
            complaints.append(message.text)

    page = browser.new_page(base_url=address, viewport={"width": WIDTH, "height": HEIGHT})
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", note)
    yield page
    page.close()
    assert not complaints


@pytest.fixture
def plain_page(browser: Browser, address: str) -> Iterator[Page]:
    """A window without JavaScript."""
    page = browser.new_page(
        base_url=address, java_script_enabled=False, viewport={"width": WIDTH, "height": HEIGHT}
    )
    yield page
    page.close()
