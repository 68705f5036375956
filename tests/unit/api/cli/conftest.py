"""The command on a seeded database of the test's own."""

import pytest

from tests.unit.api.cli.commands import Command


@pytest.fixture
def meshplan(seeded_url: str) -> Command:
    """The command, its database seeded already."""
    return Command(environment={"MESHPLAN_DATABASE_URL": seeded_url})
