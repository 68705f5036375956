"""Profiles sent to a service that is not always there."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from api.cli.outcome import ProblemError
from api.cli.profile_upload import ProfileClient, ServiceAwayError, client_of, send_or_say_how
from api.profile_chunks import Upload
from tests.unit.api.cli.commands import Command
from tests.unit.api.machines import machine_profile


@dataclass
class Network:
    """A real address that hands requests to the service; the first ``failures`` of them get no answer."""

    client: TestClient
    failures: int = 0
    status: HTTPStatus | None = None
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.asked.append((handler.command, handler.path, handler.headers.get("Authorization")))
        if self.failures:
            self.failures -= 1
            if self.status is not None:
                handler.send_response(self.status)
                handler.end_headers()
            return
        answer = self.client.request(handler.command, handler.path, content=body)
        handler.send_response(answer.status_code)
        handler.send_header("Content-Length", str(len(answer.content)))
        handler.end_headers()
        handler.wfile.write(answer.content)


@pytest.fixture
def network(client: TestClient) -> Network:
    return Network(client=client)


@pytest.fixture
def url(network: Network) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            network.answer(self)

        def do_PUT(self) -> None:
            network.answer(self)

        def do_POST(self) -> None:
            network.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def waiting(url: str, waits: list[float]) -> ProfileClient:
    return ProfileClient(url=url, waits=(1.0, 2.0), sleep=waits.append)


def test_profile_arrives(url: str, network: Network) -> None:
    stored = client_of(url).send(machine_profile())

    assert (stored.name, stored.is_new, stored.num_accepted) == ("cpu-small/measured", True, 5)
    assert [method for method, _, _ in network.asked] == ["GET", "PUT", "POST"]


@pytest.mark.parametrize("status", [None, HTTPStatus.SERVICE_UNAVAILABLE])
def test_service_that_comes_back_is_asked_again(
    url: str, network: Network, status: HTTPStatus | None
) -> None:
    network.failures, network.status = 2, status
    waits: list[float] = []

    assert waiting(url, waits).send(machine_profile()).is_new
    assert waits == [1.0, 2.0]


def test_chunks_that_arrived_are_not_sent_again(url: str, network: Network) -> None:
    upload = Upload.of(machine_profile())
    network.client.put(f"/v1/profile-uploads/{upload.digest}/chunks/0", content=upload.chunks[0])

    assert client_of(url).send(machine_profile()).is_new
    assert [method for method, _, _ in network.asked] == ["GET", "POST"]


def test_service_that_stays_away_is_told(network: Network, url: str) -> None:
    network.failures = 3

    with pytest.raises(ServiceAwayError, match="is away"):
        waiting(url, []).send(machine_profile())


def test_refusal_is_not_tried_again(url: str, network: Network) -> None:
    waits: list[float] = []

    with pytest.raises(ProblemError, match="format"):
        waiting(url, waits).send(machine_profile(format="other/1"))
    assert waits == []
    assert len(network.asked) == 3


def test_headers_go_with_every_request(url: str, network: Network) -> None:
    ProfileClient(url=url, headers={"Authorization": "Bearer of-a-token"}).send(machine_profile())

    assert {header for _, _, header in network.asked} == {"Bearer of-a-token"}


def test_address_must_be_one() -> None:
    with pytest.raises(ProblemError, match="no address of a service"):
        client_of("planner:8000")


def test_upload_of_a_file_and_of_a_stored_profile(meshplan: Command, url: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(machine_profile()))

    assert "cpu-small/measured sent: 5" in meshplan("profiles", "upload", str(path), "--to", url).errors
    meshplan("profiles", "import", str(path))
    again = meshplan("profiles", "upload", "cpu-small/measured", "--to", url)
    assert again.code == 0
    assert "there already" in again.errors


def test_upload_to_a_service_that_is_away_says_how_to_try_again(capsys: pytest.CaptureFixture[str]) -> None:
    client = ProfileClient(url="http://127.0.0.1:9", waits=())

    with pytest.raises(SystemExit) as ended:
        send_or_say_how(machine_profile(), name="profile.json", client=client)

    assert ended.value.code == 69
    assert "meshplan profiles upload profile.json --to http://127.0.0.1:9" in capsys.readouterr().err
