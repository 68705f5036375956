import json
from pathlib import Path

from tests.unit.api.cli.commands import Command
from tests.unit.api.machines import machine_profile

COLLECTIVE = machine_profile()["collectives"][0]


def test_curves_stand_with_what_they_leave_over(meshplan: Command, tmp_path: Path) -> None:
    seconds = [1e-4, 1.01e-4, 1.1e-4, 2e-4, 1.1e-3, 5e-2]
    rows = [
        {**COLLECTIVE, "payload_bytes": 10**number, "seconds": value}
        for number, value in enumerate(seconds, start=3)
    ]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(machine_profile(collectives=rows)))

    (curve,) = meshplan("profiles", "fit", str(path), "--json").document
    assert curve["kind"] == "all_reduce, 2 ranks, 2 per node"
    assert curve["start_seconds"] > 0
    assert max(curve["points"], key=lambda point: abs(point["residual"]))["label"] == "100000000 B"
    assert "100000000 B (+" in meshplan("profiles", "fit", str(path)).output


def test_gaps_of_a_published_profile_are_told(meshplan: Command) -> None:
    ended = meshplan("profiles", "fit", "v100-sxm-16gb/published")

    assert ended.code == 0
    assert "median error" in ended.output
