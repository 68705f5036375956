"""Measuring, without a measuring machine: what is asked of the profiler, and the jobs that are written."""

import json
import math
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest

from api.cli.profile_for import SETTLED, Session, measure_for
from api.cli.profiler_process import ProfilerRun, usual_output
from api.cli.profiles import keep_profile
from api.jobs.answering import resolve
from api.schemas.request import PlanRequestDocument
from api.workspace import Workspace
from planner.wanted_shapes import measured_in, wanted_shapes
from tests.unit.api.cli.commands import Command
from tests.unit.api.machines import FLOPS_PER_SECOND, machine_profile

SERVICE = "http://planner:8000"
REQUEST = {
    "model": {"preset": "gpt-2-124m", "num_layers": 2},
    "cluster": {"preset": "h100-sxm", "num_devices": 2},
    "job": {"global_batch_size": 16, "sequence_length": 1024},
}


def manifest(meshplan: Command, *options: str) -> list[dict[str, Any]]:
    ended = meshplan("profile", "--kubernetes", "-", "--image", "it", "--upload", SERVICE, *options)
    assert ended.code == 0, ended.errors
    items: list[dict[str, Any]] = ended.document["items"]
    return items


def test_script_for_slurm_says_what_the_job_needs(meshplan: Command, tmp_path: Path) -> None:
    output = tmp_path / "a profile.json"
    ended = meshplan(
        *("profile", "--sbatch", "-", "--output", str(output), "--nodes", "2", "--devices-per-node", "8"),
        *("--seconds-limit", "600", "--upload", SERVICE),
    )

    assert ended.code == 0
    lines = ended.output.splitlines()
    assert lines[0] == "#!/bin/bash"
    wanted = {
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gpus-per-node=8",
        "--exclusive",
        "--requeue",
        "--time=24",
    }
    assert wanted <= {line.removeprefix("#SBATCH ") for line in lines}
    assert f"--output '{output}' --device cuda --seconds-limit 600.0 --load-seconds 60.0" in ended.output
    assert lines[-1].endswith(f"profiles upload '{output}' --to {SERVICE}")


def test_script_for_processors_asks_for_no_accelerators(meshplan: Command, tmp_path: Path) -> None:
    output = str(tmp_path / "p.json")
    ended = meshplan("profile", "--sbatch", "-", "--output", output, "--device", "cpu")

    assert "gpus" not in ended.output
    assert "--device cpu" in ended.output
    assert "upload" not in ended.output


def test_script_needs_a_file_that_all_nodes_share(meshplan: Command) -> None:
    ended = meshplan("profile", "--sbatch", "-")

    assert ended.code == 2
    assert "--output" in ended.errors


@pytest.mark.parametrize("options", [(), ("--device", "cpu"), ("--nodes", "3", "--devices-per-node", "8")])
def test_manifest_is_what_kubernetes_takes(meshplan: Command, options: tuple[str, ...]) -> None:
    for item in manifest(meshplan, *options):
        kubernetes_validate.validate(item, kubernetes_validate.latest_version(), strict=True)


def test_pods_of_a_manifest_meet_and_the_first_one_sends(meshplan: Command) -> None:
    service, job = manifest(meshplan, "--nodes", "3", "--devices-per-node", "8")

    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    pod = spec["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    script = container["command"][-1]
    assert "--nnodes=3 --nproc-per-node=8" in script
    assert f"then meshplan profiles upload /profile/profile.json --to {SERVICE}; fi" in script


def test_shapes_for_a_request_go_with_the_manifest(meshplan: Command, tmp_path: Path) -> None:
    request, target = tmp_path / "request.json", tmp_path / "job.json"
    request.write_text(json.dumps(REQUEST))
    ended = meshplan(
        *("profile", "--kubernetes", str(target), "--image", "it", "--upload", SERVICE),
        *("--for", str(request)),
    )

    assert ended.code == 0, ended.errors
    config, _, job = json.loads(target.read_text())["items"]
    shapes = json.loads(config["data"]["shapes.json"])
    assert shapes["format"] == "meshplan-shapes/1"
    assert shapes["kernels"][0]["influence"] >= shapes["kernels"][-1]["influence"]
    script = job["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    assert "--request /shapes/shapes.json" in script
    kubernetes_validate.validate(config, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize(("options", "missing"), [(("--image", "it"), "--upload"), ((), "--upload")])
def test_manifest_needs_somewhere_to_send_to(
    meshplan: Command, options: tuple[str, ...], missing: str
) -> None:
    ended = meshplan("profile", "--kubernetes", "-", *options)

    assert ended.code == 2
    assert missing in ended.errors


def test_profiler_is_asked_for_what_was_said() -> None:
    run = ProfilerRun(output=Path("p.json"), processes=2, seconds_limit=30.0, afresh=True)

    assert run.arguments() == [
        *("--output", "p.json", "--device", "auto", "--processes", "2"),
        *("--seconds-limit", "30.0", "--afresh"),
    ]
    again = run.of_shapes(Path("s.json"), seconds_limit=None)
    assert again.arguments()[-2:] == ["--request", "s.json"]


@pytest.mark.parametrize(
    ("url", "folder"),
    [("sqlite:////data/m.sqlite3", "/data/profiles"), ("postgresql://db/m", "meshplan/profiles")],
)
def test_profile_is_kept_beside_the_database(url: str, folder: str) -> None:
    path = usual_output(url, device="auto", processes=2)

    assert str(path).endswith(f"{folder}/auto-2.json")


class FakeProfiler(ProfilerRun):
    """Measures whatever it is asked for, each in a second, and counts its rounds."""

    def of_shapes(self, request: Path, *, seconds_limit: float | None) -> "FakeProfiler":
        del seconds_limit
        return FakeProfiler(output=self.output, request=request)

    def start(self) -> dict[str, Any]:
        assert self.request is not None
        asked = json.loads(self.request.read_text())
        document: dict[str, Any] = {"facts": {}, "kernels": [], "collectives": [], "rounds": 0}
        if self.output.exists():
            document = json.loads(self.output.read_text())
        for name in ("kernels", "collectives"):
            document[name] += [{**row, "seconds": 1.0} for row in asked[name]]
        document["rounds"] += 1
        self.output.write_text(json.dumps(document))
        return document


def test_measuring_for_a_request_ends_when_its_prediction_has_settled(
    workspace: Workspace, tmp_path: Path
) -> None:
    kept: list[dict[str, Any]] = []
    session = Session(
        request=PlanRequestDocument.model_validate(REQUEST),
        run=FakeProfiler(output=tmp_path / "profile.json"),
        workspace=workspace,
        store=kept.append,
        deadline=None,
    )
    document = measure_for(session)

    # What is kept here never reaches the planner, whose prediction therefore stays the same.
    assert document["rounds"] == len(kept)
    assert 1 <= document["rounds"] <= 3
    shares = [row["influence"] for row in kept[0]["kernels"]]
    assert shares == sorted(shares, reverse=True)
    assert len(kept[0]["kernels"]) + len(kept[0]["collectives"]) == 32


class SmallMachine(ProfilerRun):
    """A machine with round rates: first its ladder, then whatever it is asked for."""

    def of_shapes(self, request: Path, *, seconds_limit: float | None) -> "SmallMachine":
        del seconds_limit
        return SmallMachine(output=self.output, request=request)

    def start(self) -> dict[str, Any]:
        document = json.loads(self.output.read_text()) if self.output.exists() else machine_profile()
        asked = json.loads(self.request.read_text()) if self.request else {}
        for name in ("kernels", "collectives"):
            document[name] += [self.measured(row) for row in asked.get(name, ())]
        self.output.write_text(json.dumps(document))
        return document

    def measured(self, row: dict[str, Any]) -> dict[str, Any]:
        work = math.prod(row.get("shape", {"bytes": row.get("payload_bytes")}).values())
        kept = {key: value for key, value in row.items() if key != "influence"}
        return {**kept, "seconds": 1e-6 + work / FLOPS_PER_SECOND}


def test_machine_that_nobody_knows_is_measured_before_it_is_planned_for(
    workspace: Workspace, tmp_path: Path
) -> None:
    session = Session(
        request=PlanRequestDocument.model_validate(
            {
                **REQUEST,
                "cluster": {"preset": "local", "num_devices": 2},
                "job": {"global_batch_size": 8, "sequence_length": 128, "precision": "fp32"},
            }
        ),
        run=SmallMachine(output=tmp_path / "profile.json"),
        workspace=workspace,
        store=lambda document: keep_profile(document, workspace=workspace),
        deadline=None,
    )
    document = measure_for(session)

    assert document["kernels"][:3] == machine_profile()["kernels"]
    measured = {row["operator"] for row in document["kernels"][3:]}
    assert {"matrix_product", "attention"} <= measured
    wanted = wanted_shapes(resolve(session.request, library=workspace.library).request)
    assert wanted.uncertainty(without=measured_in(document)) <= SETTLED


def test_measuring_for_a_request_ends_when_time_is_up(workspace: Workspace, tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    output.write_text(json.dumps({"facts": {}, "kernels": [], "collectives": [], "rounds": 0}))
    session = Session(
        request=PlanRequestDocument.model_validate(REQUEST),
        run=FakeProfiler(output=output),
        workspace=workspace,
        store=lambda _: None,
        deadline=0.0,
    )

    assert measure_for(session)["rounds"] == 0
