from api.pages.api_overview import Operation, operations


def test_every_verb_of_every_path_is_told() -> None:
    openapi = {
        "paths": {
            "/v1/plans": {"post": {"summary": "Create Plan", "description": "Find it. ``Prefer`` waits."}},
            "/healthz": {"get": {}},
        }
    }
    assert operations(openapi) == (
        Operation(
            method="POST", path="/v1/plans", summary="Create Plan", description="Find it. Prefer waits."
        ),
        Operation(method="GET", path="/healthz", summary="", description=""),
    )
