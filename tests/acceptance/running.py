"""The real service and a real browser, for as long as a test needs them."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import uvicorn
from playwright.sync_api import Browser, sync_playwright

from api.app import create_app
from api.settings import Settings

START_SECONDS = 60.0


@contextmanager
def running_service(folder: Path) -> Iterator[str]:
    """Run the service with its workers on a database of its own; give its address."""
    settings = Settings(database_url=f"sqlite:///{folder / 'meshplan.sqlite3'}")
    config = uvicorn.Config(create_app(settings), log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        _wait_until_started(server, thread)
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(timeout=START_SECONDS)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run Debian's Chromium without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("the service did not start")
        time.sleep(0.05)
