"""The profiler on accelerators: run where there are some, by ``pytest -m gpu``."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from planner.profile import Profile

ROOT = Path(__file__).parents[2]
SECONDS = 300
OWN_REASONS = {"out_of_memory", "time_limit", "unsupported", "too_few_processes"}
"""Why something may be left out on a machine where nothing is broken."""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the profiler finds in a minute on all accelerators of this machine."""
    output = tmp_path_factory.mktemp("gpu") / "profile.json"
    command = [sys.executable, "-m", "profiler", "--device", "cuda", "--seconds-limit", "60"]
    subprocess.run([*command, "--output", str(output)], cwd=ROOT, check=True, timeout=SECONDS)
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def test_nothing_fails_that_could_be_measured(document: dict[str, Any]) -> None:
    assert [row for row in document["facts"]["skipped"] if row["reason"] not in OWN_REASONS] == []


def test_profile_has_kernels_copies_and_the_rate_under_load(document: dict[str, Any]) -> None:
    assert Profile.from_document(document).num_rows == sum(
        len(document[name]) for name in ("kernels", "collectives", "transfers")
    )
    operators = {row["operator"] for row in document["kernels"]}
    assert {"matrix_product", "attention", "rms_norm", "adam", "launch"} <= operators
    assert {"h2d", "d2h"} <= {row["operation"] for row in document["transfers"]}
    (first, *_) = document["facts"]["sustained"]["ranks"]
    assert 0 < first["sustained_flops_per_second"] <= 1.1 * first["burst_flops_per_second"]


def test_large_products_are_faster_than_memory_could_feed(document: dict[str, Any]) -> None:
    best = document["facts"]["best_measured"]

    assert max(best["flops_per_second"].values()) > 10 * best["memory_bandwidth_bytes_per_second"]
