"""``meshplan profiles import-aiconfigurator``."""

from pathlib import Path

import pytest

from tests.unit.api.cli.commands import Command

TABLE = """device,kernel_source,gemm_dtype,m,n,k,latency
NVIDIA H100 80GB HBM3,torch,bfloat16,4096,4096,4096,0.2
NVIDIA H100 80GB HBM3,torch,bfloat16,8192,4096,4096,0.4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "h100_sxm" / "gemm" / "vllm" / "0.24.0" / "gemm_perf.txt"
    path.parent.mkdir(parents=True)
    path.write_text(TABLE)
    return tmp_path / "data"


def test_tables_are_kept_as_profiles(meshplan: Command, folder: Path) -> None:
    ended = meshplan("profiles", "import-aiconfigurator", "--folder", str(folder))
    assert ended.output == "h100-sxm/aiconfigurator: 2 measurements of H100-SXM5-80GB\n"
    assert "h100-sxm/aiconfigurator" in meshplan("profiles", "list").output


def test_a_device_may_be_chosen_by_any_of_its_names(meshplan: Command, folder: Path) -> None:
    (one,) = meshplan(
        "profiles", "import-aiconfigurator", "--folder", str(folder), "--device", "H100 SXM", "--json"
    ).document
    assert one["num_accepted"] == 2
    other = meshplan("profiles", "import-aiconfigurator", "--folder", str(folder), "--device", "L40S")
    assert other.code == 2
    assert "no tables of L40S" in other.errors


def test_it_says_what_is_missing_where_it_is_not_installed(
    meshplan: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.profiles.aiconfigurator.PACKAGES", ("no_such_package",))
    ended = meshplan("profiles", "import-aiconfigurator")
    assert ended.code == 2
    assert "pip install aiconfigurator-core" in ended.errors
