"""The job script that the command writes, taken and run by a real Slurm."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.profile import Profile
from tests.integration.slurm import Slurm, is_here, running_slurm

RUN = "from api.cli import main; main()"
SECONDS = 180
SHAPES = {
    "format": "meshplan-shapes/1",
    "kernels": [
        {
            "operator": "matrix_product",
            "dtype": "fp32",
            "phase": "forward",
            "shape": {"m": 64, "n": 64, "k": 64},
        }
    ],
    "collectives": [{"operation": "all_reduce", "world_size": 2, "payload_bytes": 1024}],
}

pytestmark = pytest.mark.skipif(not is_here(), reason="needs root, and Slurm: make slurm")


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with running_slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


def write_script(folder: Path, *options: str) -> Path:
    shapes, script = folder / "shapes.json", folder / "job.sh"
    shapes.write_text(json.dumps(SHAPES))
    command = [sys.executable, "-c", RUN, "profile", "--sbatch", str(script), "--request", str(shapes)]
    subprocess.run([*command, "--output", str(folder / "profile.json"), *options], check=True)
    return script


def test_job_script_is_taken_and_measures(tmp_path: Path, slurm: Slurm) -> None:
    script = write_script(tmp_path, "--device", "cpu", "--devices-per-node", "2", "--seconds-limit", "20")
    root = Path(__file__).parents[2]
    job = slurm.run("sbatch", "--parsable", "--chdir", str(root), str(script)).strip()

    deadline = time.monotonic() + SECONDS
    while slurm.state(job) in {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}:
        assert time.monotonic() < deadline
        time.sleep(0.5)

    log = (tmp_path / "profile.json.log").read_text()
    assert slurm.state(job) == "COMPLETED", log
    document = json.loads((tmp_path / "profile.json").read_text())
    assert Profile.from_document(document).num_rows == 2
    assert document["facts"]["processes"] == 2
    (node,) = document["facts"]["nodes"]
    assert node["slurm"]["SLURM_JOB_ID"] == job


def test_job_that_no_node_could_run_is_told_before(tmp_path: Path, slurm: Slurm) -> None:
    script = write_script(tmp_path, "--device", "cpu", "--nodes", "7")

    with pytest.raises(AssertionError, match="is not available"):
        slurm.run("sbatch", "--test-only", str(script))
