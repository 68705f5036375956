import json
from pathlib import Path
from typing import Any

from tests.unit.api.cli.commands import Command
from tests.unit.api.machines import machine_profile

COLLECTIVE = machine_profile()["collectives"][0]
OVERLAP = {
    "collective": {"operation": "all_reduce", "world_size": 2, "payload_bytes": 8},
    "kernel": {},
    "kernels": 2,
    "collective_seconds_alone": 0.5,
    "collective_seconds_together": 0.75,
    "kernels_seconds_alone": 0.5,
    "kernels_seconds_together": 0.625,
}
FACTS: dict[str, Any] = {
    "ranks": [{"rank": 7, "node": "node-b", "device": 1, "relative_time": 1.3, "is_slow": True}],
    "overlaps": [OVERLAP],
    "skipped": [
        {"operator": "add", "shape": {"elems": 9}, "reason": "out_of_memory", "detail": "needs <9> B"},
        {"collective": {}, "kernel": {}, "reason": "failed", "detail": ""},
    ],
}


def report(meshplan: Command, folder: Path, profile: str) -> str:
    target = folder / "report.html"
    ended = meshplan("profiles", "report", profile, "--output", str(target))
    assert ended.code == 0, ended.errors
    return target.read_text()


def test_page_shows_curves_coverage_and_what_was_odd(meshplan: Command, tmp_path: Path) -> None:
    sends = [{**COLLECTIVE, "payload_bytes": 4**number, "seconds": 1e-6 * 4**number} for number in range(6)]
    document = machine_profile(collectives=sends)
    document["facts"] = {**document["facts"], **FACTS}
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(document))

    page = report(meshplan, tmp_path, str(path))

    assert page.count("<svg") == 1
    assert "<style>" in page
    assert "all_reduce, 2 ranks, 2 per node" in page
    assert page.count("<circle") == 6
    assert "node-b" in page
    assert "needs &lt;9&gt; B" in page
    assert "750 ms" in page
    assert "matrix_product fp32 forward" in page


def test_page_of_a_published_profile_says_how_wrong_it_is(meshplan: Command, tmp_path: Path) -> None:
    page = report(meshplan, tmp_path, "v100-sxm-16gb/published")

    assert "Found from the others" in page
    assert "Processes" not in page
    assert "http" not in page.replace("http-equiv", "")
