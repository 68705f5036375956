"""Two ranks profiled, planned for and run: plans stand in the order predicted, in the memory predicted."""

import os
import shutil
import subprocess
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks.closed_loop.figures import MOST_MEMORY_ERROR, Trialled
from benchmarks.closed_loop.loop import Effort, run_loop
from benchmarks.closed_loop.network import HUNDRED_MEGABIT, PREFIX, joined
from benchmarks.closed_loop.page import write_page
from benchmarks.closed_loop.processes import RankDied, run_ranks
from benchmarks.closed_loop.scenarios import FEW
from planner.validation.metrics import median

CLEAR_FACTOR = 3.0
"""Of two predictions, from which a machine that does other things as well keeps their order."""
EFFORT = Effort(kernel_seconds=40, link_seconds=0, run_seconds=60, rounds=3)
HAS_NAMESPACES = os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc")


@pytest.fixture(scope="module")
def trialled(tmp_path_factory: pytest.TempPathFactory) -> Trialled:
    (found,) = run_loop(FEW, EFFORT, folder=tmp_path_factory.mktemp("loop"))
    return found


def test_plans_that_differ_clearly_run_in_the_order_predicted(trialled: Trialled) -> None:
    pairs = [
        sorted(pair, key=lambda found: found.predicted)
        for pair in combinations(trialled.times(), 2)
        if max(pair[0].predicted / pair[1].predicted, pair[1].predicted / pair[0].predicted) > CLEAR_FACTOR
    ]
    assert pairs
    assert all(quicker.measured < slower.measured for quicker, slower in pairs)


def test_tensors_take_the_memory_predicted(trialled: Trialled) -> None:
    errors = [abs(found.relative_error) for found in trialled.peaks()]
    assert len(errors) >= len(FEW[0].only)
    assert (median(errors) or 0.0) < MOST_MEMORY_ERROR
    assert max(errors) < 2 * MOST_MEMORY_ERROR


def test_chosen_plan_is_among_those_that_ran(trialled: Trialled, tmp_path: Path) -> None:
    assert trialled.regret is not None
    assert trialled.regret >= 0.0
    page = tmp_path / "page.html"
    document = {
        "machine": {"device": "here", "cores": 2, "torch": "2"},
        "goals": [],
        "choices": [],
        "runs": [{"figures": trialled.figures()}],
    }
    write_page(page, document, [trialled])
    assert page.read_text().count("<circle") == 2 * len(trialled.plans)


@pytest.mark.skipif(not HAS_NAMESPACES, reason="needs root, ip and tc")
def test_namespaces_are_gone_when_what_ran_in_them_fails(tmp_path: Path) -> None:
    def own() -> list[str]:
        listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
        return [line for line in listed.splitlines() if line.startswith(f"{PREFIX}-{os.getpid()}-")]

    def fail() -> None:
        with joined(HUNDRED_MEGABIT, ranks=2) as network:
            assert len(own()) == 3
            run_ranks(network, "profiler", ["--output", "/nowhere/x.json"], log=tmp_path / "log")

    with pytest.raises(RankDied, match="no folder"):
        fail()
    assert own() == []
