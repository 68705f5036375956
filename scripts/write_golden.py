"""Write the golden results anew, after a change of them that is meant."""

import json
import tempfile
from pathlib import Path

from api.workspace import migrated_workspace
from tests.golden.documents import NAMES, answer_to, result_path


def main() -> None:
    """Answer every golden request and keep what comes back."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = migrated_workspace(f"sqlite:///{Path(folder) / 'meshplan.sqlite3'}")
        for name in NAMES:
            document = answer_to(name, library=workspace.library)
            result_path(name).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        workspace.close()


if __name__ == "__main__":
    main()
