"""Write the OpenAPI document that is published, after a change of it that is meant."""

import json
from pathlib import Path

from api.app import create_app
from api.settings import Settings

PUBLISHED = Path(__file__).parent.parent / "docs" / "openapi.json"


def main() -> None:
    """Write the document of the service as it stands."""
    document = create_app(Settings(database_url="sqlite://")).openapi()
    PUBLISHED.parent.mkdir(exist_ok=True)
    PUBLISHED.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
