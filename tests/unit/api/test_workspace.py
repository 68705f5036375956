"""A database made ready, and told apart from one that is not."""

from api.workspace import Workspace, open_workspace, prepare_workspace


def test_a_database_is_ready_once_it_is_migrated(sqlite_url: str) -> None:
    empty = open_workspace(sqlite_url)
    assert not empty.is_migrated()
    calls: list[None] = []
    ready = prepare_workspace(sqlite_url, on_work=lambda: calls.append(None))
    assert ready.is_migrated()
    assert len(calls) == 1
    for workspace in (empty, ready):
        workspace.close()


def test_a_file_has_one_service(workspace: Workspace) -> None:
    assert workspace.is_of_one_service()
