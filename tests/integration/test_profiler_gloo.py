"""The profiler as the command starts it: processes of its own, joined by gloo."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.profile import Profile

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 180
MANY_PRODUCTS = 5000


@pytest.fixture(autouse=True)
def _killed_runs_litter_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def product(size: int) -> dict[str, Any]:
    shape = {"m": size, "n": size, "k": size}
    return {"operator": "matrix_product", "dtype": "fp32", "phase": "forward", "shape": shape}


def all_reduce(payload_bytes: int, *, world_size: int = 2) -> dict[str, Any]:
    return {"operation": "all_reduce", "world_size": world_size, "payload_bytes": payload_bytes}


def write_request(folder: Path, **lists: list[dict[str, Any]]) -> Path:
    path = folder / "shapes.json"
    path.write_text(json.dumps({"format": "meshplan-shapes/1", **lists}))
    return path


def start(*arguments: str | Path, module: tuple[str, ...] = ("-m", "profiler")) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *module, *map(str, arguments), "--device", "cpu"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def reduced(document: dict[str, Any]) -> list[tuple[int, int, int, str]]:
    return [
        (row["world_size"], row["ranks_per_node"], row["payload_bytes"], row["algorithm"])
        for row in document["collectives"]
    ]


def test_two_ranks_measure_products_at_once_and_reduce_between_them(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    request = write_request(
        tmp_path, kernels=[product(32), product(64)], collectives=[all_reduce(1024), all_reduce(262144)]
    )

    profiler = start("--output", output, "--request", request, "--processes", "2", "--seconds-limit", "60")
    errors = profiler.communicate(timeout=TIMEOUT_SECONDS)[1]

    assert profiler.returncode == 0, errors
    document = json.loads(output.read_text())
    assert Profile.from_document(document).num_rows == 4
    assert all(row["seconds"] > 0 for row in (*document["kernels"], *document["collectives"]))
    assert reduced(document) == [(2, 2, 1024, "gloo"), (2, 2, 262144, "gloo")]
    assert document["facts"]["processes"] == 2
    assert document["facts"]["complete"] is True
    assert document["facts"]["skipped"] == []


def test_every_collective_runs_alone_at_once_and_beside_a_kernel(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    operations = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive", "broadcast")
    collectives = [{**all_reduce(4096), "operation": operation} for operation in operations]
    at_once = {**all_reduce(4096), "groups": 2}
    overlaps = [{"collective": all_reduce(4096), "kernel": product(32)}]
    request = write_request(tmp_path, collectives=[*collectives, at_once], overlaps=overlaps)

    profiler = start("--output", output, "--request", request, "--processes", "4")
    errors = profiler.communicate(timeout=TIMEOUT_SECONDS)[1]

    assert profiler.returncode == 0, errors
    document = json.loads(output.read_text())
    assert document["facts"]["skipped"] == []
    assert sorted(row["operation"] for row in document["collectives"]) == sorted(operations)
    assert [row["groups"] for row in document["facts"]["groups_at_once"]] == [2]
    (overlap,) = document["facts"]["overlaps"]
    assert overlap["kernels"] >= 1
    assert overlap["collective_seconds_together"] > 0


def test_run_that_was_killed_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    request = write_request(tmp_path, kernels=[product(16 + size) for size in range(MANY_PRODUCTS)])
    arguments = ("--output", output, "--request", request, "--processes", "1")
    profiler = start(*arguments)
    wait_until(lambda: output.exists() and len(json.loads(output.read_text())["kernels"]) > 1)
    os.kill(profiler.pid, signal.SIGKILL)
    profiler.communicate(timeout=TIMEOUT_SECONDS)
    had = json.loads(output.read_text())["kernels"]

    again = start(*arguments, "--seconds-limit", "0.1")
    again.communicate(timeout=TIMEOUT_SECONDS)

    document = json.loads(output.read_text())
    assert document["kernels"][: len(had)] == had
    assert len(document["facts"]["runs"]) == 1


def test_ranks_of_torchrun_outside_a_group_wait_in_step(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    collectives = [all_reduce(1024, world_size=size) for size in (2, 3, 4)]
    request = write_request(tmp_path, kernels=[product(32)], collectives=collectives)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "-m", "profiler")

    profiler = start("--output", output, "--request", request, module=torchrun)
    errors = profiler.communicate(timeout=TIMEOUT_SECONDS)[1]

    assert profiler.returncode == 0, errors
    document = json.loads(output.read_text())
    assert reduced(document) == [(2, 2, 1024, "gloo"), (3, 3, 1024, "gloo")]
    assert len(document["kernels"]) == 1
    assert [row["reason"] for row in document["facts"]["skipped"]] == ["too_few_processes"]


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM])
def test_killed_run_leaves_what_it_had_and_no_process(tmp_path: Path, ended_by: signal.Signals) -> None:
    output = tmp_path / "profile.json"
    request = write_request(tmp_path, kernels=[product(16 + size) for size in range(MANY_PRODUCTS)])
    profiler = start("--output", output, "--request", request, "--processes", "2")

    wait_until(lambda: output.exists() and len(json.loads(output.read_text())["kernels"]) > 1)
    ranks = children_of(profiler.pid)
    os.kill(profiler.pid, ended_by)
    profiler.communicate(timeout=TIMEOUT_SECONDS)
    wait_until(lambda: not any(is_running(rank) for rank in ranks))

    document = json.loads(output.read_text())
    assert profiler.returncode != 0
    assert len(ranks) >= 2
    assert 1 < Profile.from_document(document).num_rows < MANY_PRODUCTS
    assert document["facts"]["complete"] is False


def test_death_of_one_rank_ends_the_run_and_keeps_what_it_had(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    request = write_request(tmp_path, kernels=[product(16 + size) for size in range(MANY_PRODUCTS)])
    profiler = start("--output", output, "--request", request, "--processes", "2")

    wait_until(lambda: output.exists() and len(json.loads(output.read_text())["kernels"]) > 1)
    os.kill(children_of(profiler.pid)[-1], signal.SIGKILL)
    errors = profiler.communicate(timeout=TIMEOUT_SECONDS)[1]

    assert profiler.returncode == 1
    assert f"a process died; what was measured is in {output}" in errors
    assert Profile.from_document(json.loads(output.read_text())).num_rows > 1
