import json
from pathlib import Path
from typing import Any

from tests.unit.api.cli.commands import Command
from tests.unit.api.machines import machine_profile

RANKS = [
    {"rank": 0, "node": "a", "device": 0, "relative_time": 1.0, "is_slow": False},
    {"rank": 1, "node": "b", "device": 0, "relative_time": 1.2, "is_slow": True},
]


def written(folder: Path, name: str, *, factor: float) -> str:
    kernels = [
        {
            "operator": "add",
            "dtype": "fp32",
            "phase": "forward",
            "shape": {"elems": elems},
            "seconds": factor * elems,
        }
        for elems in range(1, 8)
    ]
    document: dict[str, Any] = machine_profile(kernels=kernels)
    document["facts"] = {**document["facts"], "ranks": RANKS}
    path = folder / name
    path.write_text(json.dumps(document))
    return str(path)


def test_slow_machines_and_processes_are_named(meshplan: Command, tmp_path: Path) -> None:
    files = [written(tmp_path, name, factor=factor) for name, factor in (("a", 1.0), ("b", 1.0), ("c", 1.4))]
    document = meshplan("profiles", "compare", *files, "--json").document

    assert [row["name"] for row in document["compared"] if row["is_slow"]] == [files[2]]
    assert [rank["node"] for rank in document["slow_processes"]] == ["b", "b", "b"]
    shown = meshplan("profiles", "compare", *files).output
    assert "slow" in shown
    assert f"slow: {files[0]}, rank 1" in shown


def test_stored_profiles_are_compared_by_name(meshplan: Command) -> None:
    ended = meshplan("profiles", "compare", "gb200/published", "gb300/published")

    assert ended.code == 0
    assert "gb300/published" in ended.output


def test_one_profile_is_no_comparison(meshplan: Command, tmp_path: Path) -> None:
    path = written(tmp_path, "a", factor=1.0)

    assert meshplan("profiles", "compare", path).code == 2
    assert meshplan("profiles", "compare", path, path).code == 2


def test_profiles_with_nothing_in_common_are_refused(meshplan: Command, tmp_path: Path) -> None:
    path = written(tmp_path, "a", factor=1.0)
    ended = meshplan("profiles", "compare", path, "hosts/published")

    assert ended.code == 2
    assert "no measurement in common" in ended.errors
