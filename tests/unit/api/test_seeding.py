"""What is shipped gets into the database once, and again when it has changed."""

from api.seeding import SHIPPED_DIGEST, seed_devices, seed_profiles, shipped_digest
from api.workspace import Workspace, migrated_workspace
from planner.devices import device_names
from planner.profile import builtin_profile, builtin_profile_names


def test_everything_that_is_shipped_is_there(workspace: Workspace) -> None:
    built_in = [summary for summary in workspace.profiles.summaries() if summary.built_in]
    assert {summary.name for summary in built_in} == set(builtin_profile_names())
    assert [device["name"] for device in workspace.devices.list_all()] == list(device_names())


def test_nothing_is_done_where_nothing_has_changed(workspace: Workspace) -> None:
    before = workspace.profiles.summaries()
    calls: list[None] = []
    seed_profiles(workspace.profiles, on_work=lambda: calls.append(None))
    assert calls == []
    assert workspace.profiles.summaries() == before


def test_only_what_is_named_may_be_seeded(sqlite_url: str) -> None:
    workspace = migrated_workspace(sqlite_url)
    seed_profiles(workspace.profiles, names=["t4/published"])
    names = workspace.profiles.names()
    workspace.close()
    assert names == ["t4/published"]


def test_a_profile_of_an_older_version_is_replaced(workspace: Workspace) -> None:
    name = builtin_profile_names()[0]
    document = builtin_profile(name).to_document()
    old = document | {"facts": {SHIPPED_DIGEST: "old"}, "kernels": document["kernels"][:1]}
    workspace.profiles.add(old, built_in=True)
    calls: list[None] = []
    seed_profiles(workspace.profiles, on_work=lambda: calls.append(None))
    assert len(calls) == 1
    stored = workspace.profiles.get(name)
    assert stored is not None
    assert stored["facts"][SHIPPED_DIGEST] == shipped_digest(name)
    assert len(stored["kernels"]) == len(document["kernels"])


def test_a_device_that_was_changed_is_restored(workspace: Workspace) -> None:
    device = workspace.devices.get("H100-SXM5-80GB")
    assert device is not None
    workspace.devices.put([device | {"memory_bytes": 1}])
    seed_devices(workspace.devices)
    assert workspace.devices.get("H100-SXM5-80GB") == device
