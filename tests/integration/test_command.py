"""The command as its own process: serving, and measuring this machine."""

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

RUN = "from api.cli import main; main()"
SECONDS = 120
EVALUATION = {
    "model": {"preset": "gpt-2-124m"},
    "cluster": {"preset": "h100-sxm", "num_devices": 2},
    "job": {"global_batch_size": 16, "sequence_length": 1024},
    "plan": {"data_parallel": 2, "micro_batch_size": 4},
}


KERNEL = {"dtype": "fp32", "phase": "forward"}
SHAPES = {
    "format": "meshplan-shapes/1",
    "kernels": [
        {"operator": "matrix_product", **KERNEL, "shape": {"m": 128, "n": 256, "k": 256}},
        {"operator": "matrix_product", **KERNEL, "shape": {"m": 512, "n": 1024, "k": 1024}},
        {"operator": "add", **KERNEL, "shape": {"elems": 2**20}},
    ],
    "collectives": [
        {"operation": "all_reduce", "world_size": 2, "payload_bytes": 2**size} for size in (10, 20)
    ],
}


def environment(folder: Path) -> Mapping[str, str]:
    return {"MESHPLAN_DATABASE_URL": f"sqlite:///{folder / 'meshplan.sqlite3'}", "PATH": "/usr/bin:/bin"}


def meshplan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def test_the_service_starts_answers_and_ends_in_order(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN, "serve", "--port", "0"],
        env=environment(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
    ) as service:
        assert service.stderr is not None
        address = next(
            found.group(1)
            for line in service.stderr
            if (found := re.search(r"running on http://127\.0\.0\.1:(\d+)", line))
        )
        connection = http.client.HTTPConnection("127.0.0.1", int(address), timeout=SECONDS)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/evaluations", body=json.dumps(EVALUATION), headers=headers)
        answer = connection.getresponse()
        assert answer.status == http.HTTPStatus.CREATED
        assert json.loads(answer.read())["status"] == "fits"
        connection.close()
        service.send_signal(signal.SIGTERM)
        rest = service.stderr.read()
        assert service.wait(SECONDS) == 0
        assert "leaked" not in rest
        assert "Traceback" not in rest


def test_this_machine_is_measured_and_planned_for(tmp_path: Path) -> None:
    shapes = tmp_path / "shapes.json"
    shapes.write_text(json.dumps(SHAPES))
    measured = meshplan(tmp_path, "profile", "--request", str(shapes), "--processes", "2", "--device", "cpu")
    assert measured.returncode == 0, measured.stderr
    advice = next(line for line in measured.stdout.splitlines() if "meshplan plan" in line)
    planned = meshplan(tmp_path, *advice.split()[1:], "--json")
    assert planned.returncode == 0, planned.stderr
    document = json.loads(planned.stdout)
    assert document["request"]["cluster"]["preset"] == "local"
    assert [profile["name"] for profile in document["profiles"]] == [measured.stdout.split(":")[0]]
    assert document["prediction"]["provenance"]["interpolated"] > 0
