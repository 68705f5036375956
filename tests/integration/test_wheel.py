import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "planner", "profiler", "migrations")
BESIDE_THE_CODE = {".json", ".yaml", ".csv", ".gz", ".npz", ".html", ".css", ".js", ".svg", ".py"}
MAX_WHEEL_BYTES = 20 * 2**20


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the product, built from a copy so that nothing is left in the source tree."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    copied = [*PACKAGES, "pyproject.toml", "README.md", "LICENSE"]
    subprocess.run(["cp", "-R", *(ROOT / name for name in copied), source], check=True)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", built, source], check=True)
    (file,) = built.iterdir()
    return file


def test_a_wheel_holds_all_code_and_data_and_nothing_else(wheel: Path) -> None:
    expected = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.suffix in BESIDE_THE_CODE
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert sorted(expected - packed) == []
    assert {name.split("/")[0] for name in packed} == set(PACKAGES)


def test_a_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < MAX_WHEEL_BYTES


def test_an_unpacked_wheel_migrates_its_database(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    program = (
        "import api.database as database\n"
        "assert 'installed' in database.__file__, database.__file__\n"
        "engine = database.create_database_engine('sqlite:///here.sqlite3')\n"
        "database.migrate(engine)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "installed")},
    )
    assert (tmp_path / "here.sqlite3").exists()
