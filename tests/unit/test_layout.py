import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from api.settings import Settings

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FROM_A_LONGER_BUILD = re.compile(r"(nvidia|cuda)-.*|triton")
"""What torch asks for on a machine with an accelerator, fixed by the version of torch."""


def pinned_versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pins}


def all_requirements() -> list[str]:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    return [*PROJECT["dependencies"], *(requirement for extra in extras.values() for requirement in extra)]


def needed_distributions(requirements: list[str]) -> Iterator[str]:
    """Yield the name of everything installed that these requirements need, directly or not."""
    seen: set[tuple[str, str]] = set()
    queue = [(Requirement(requirement), "") for requirement in requirements]
    while queue:
        requirement, extra = queue.pop()
        name = canonicalize_name(requirement.name)
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        for asked in {"", *requirement.extras}:
            if not wanted or (name, asked) in seen or FROM_A_LONGER_BUILD.fullmatch(name):
                continue
            seen.add((name, asked))
            yield name
            queue += [(Requirement(inner), asked) for inner in distribution(name).requires or ()]


def test_every_version_of_every_environment_is_pinned() -> None:
    pins = pinned_versions()
    assert sorted(set(needed_distributions(all_requirements())) - set(pins)) == []


def test_the_service_needs_no_torch() -> None:
    assert "torch" not in set(needed_distributions(PROJECT["dependencies"]))


@pytest.mark.parametrize("name", ["migrations", "api", "database"])
def test_the_compose_file_starts_each_part(name: str) -> None:
    assert name in yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def test_the_compose_file_sets_what_the_service_reads() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    known = {f"MESHPLAN_{name.upper()}" for name in Settings.model_fields}
    assert set(services["api"]["environment"]) <= known
    assert set(services["migrations"]["environment"]) <= known


@pytest.mark.parametrize("target", ["install", "run", "test", "lint", "bench"])
def test_the_makefile_has_the_targets_that_people_are_told(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def test_the_version_is_said_once() -> None:
    try:
        installed = distribution("meshplan").version
    except PackageNotFoundError:
        pytest.fail("meshplan is not installed: run `make install`")
    assert installed == PROJECT["version"]
