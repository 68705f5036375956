"""Profiles as commands are given them: by name, or as the file that the profiler wrote."""

from collections.abc import Sequence
from pathlib import Path

from api.cli.documents import read_json
from api.cli.workspace import opened_workspace
from planner.profile import Profile

STANDARD_INPUT = "-"


def given_profiles(names: Sequence[str]) -> list[Profile]:
    """Return the profiles in the order given: those of files by their good rows, others of the store.

    Raises InvalidRequest for a file that is no profile, and UnknownName for a name that is not there.
    """
    stored = [name for name in names if not is_file(name)]
    by_name: dict[str, Profile] = {}
    if stored:
        with opened_workspace(everything=True) as workspace:
            found = workspace.library.named(stored)
        by_name = {entry.profile.name: entry.profile for entry in found}
    return [Profile.read(read_json(name))[0] if is_file(name) else by_name[name] for name in names]


def is_file(name: str) -> bool:
    """Whether an argument names a file, or standard input, rather than a stored profile."""
    return name == STANDARD_INPUT or Path(name).is_file()
