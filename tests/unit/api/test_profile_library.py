"""Profiles chosen by device and by name, and the machines that they describe."""

import pytest
from sqlalchemy import text

from api.profile_library import LOCAL
from api.workspace import Workspace, migrated_workspace
from planner.errors import UnknownName
from planner.profile import builtin_profile
from tests.unit.api.machines import machine_profile

NAME = "h100-sxm/published"
DEVICE = "H100-SXM5-80GB"


def test_a_profile_is_read_once(workspace: Workspace) -> None:
    (first,) = workspace.library.for_devices([DEVICE, DEVICE])
    (again,) = workspace.library.named([NAME, NAME])
    assert first.profile is again.profile


def test_a_shipped_profile_comes_from_the_package(workspace: Workspace) -> None:
    (stored,) = workspace.library.named([NAME])
    assert stored.profile is builtin_profile(NAME)


def test_rows_that_were_deleted_from_the_database_are_not_used(workspace: Workspace) -> None:
    with workspace.engine.begin() as connection:
        connection.execute(text("DELETE FROM kernel_measurements WHERE operator = 'attention'"))
    (stored,) = workspace.library.named([NAME])
    assert stored.profile.tables("attention") == ()
    assert stored.profile.tables("matrix_product")


def test_a_profile_that_is_replaced_is_read_again(workspace: Workspace) -> None:
    workspace.profiles.add(machine_profile())
    (first,) = workspace.library.for_devices(["cpu-small"])
    workspace.profiles.add(machine_profile(kernels=machine_profile()["kernels"][1:]))
    (second,) = workspace.library.for_devices(["cpu-small"])
    assert second.profile.num_rows == first.profile.num_rows - 1
    assert second.digest != first.digest


def test_an_unknown_name_gets_the_nearest(workspace: Workspace) -> None:
    with pytest.raises(UnknownName) as caught:
        workspace.library.named([NAME, "h100-sxm/publish"])
    assert caught.value.pointer == "/profiles/1"
    assert NAME in caught.value.nearest_legal


def test_the_machine_that_was_measured_last_is_the_local_one(workspace: Workspace) -> None:
    assert workspace.library.machines() == {}
    assert workspace.library.machine_cluster(LOCAL, num_devices=2) is None
    workspace.profiles.add(machine_profile(name="old/measured"))
    workspace.profiles.add(machine_profile(name="new/measured"))
    assert list(workspace.library.machines()) == [LOCAL, "new/measured", "old/measured"]
    assert workspace.library.machines()[LOCAL].name == "new/measured"
    cluster = workspace.library.machine_cluster(LOCAL, num_devices=2)
    assert cluster is not None
    assert cluster.node_groups[0].device.name == "cpu-small"


def test_measurements_without_facts_describe_no_machine(workspace: Workspace) -> None:
    workspace.profiles.add(machine_profile(facts={}))
    assert workspace.library.machines() == {}


def test_what_is_shipped_gets_into_an_empty_database_as_it_is_used(sqlite_url: str) -> None:
    workspace = migrated_workspace(sqlite_url)
    (by_device,) = workspace.library.for_devices(["T4-16GB"])
    (by_name,) = workspace.library.named(["a10/published"])
    names = workspace.profiles.names()
    workspace.close()
    assert (by_device.profile.name, by_name.profile.name) == ("t4/published", "a10/published")
    assert names == ["a10/published", "t4/published"]
