"""The command run in this process."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from api.cli import group


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What a command left behind."""

    code: int
    output: str
    errors: str

    @property
    def document(self) -> Any:  # noqa: ANN401 - any JSON
        """Standard output as the JSON document that it is."""
        return json.loads(self.output)


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """``meshplan`` with an environment of the test's own."""

    environment: Mapping[str, str]

    def __call__(self, *arguments: str, given: str | None = None) -> Ended:
        """Run it with arguments and standard input."""
        result = CliRunner().invoke(group, arguments, input=given, env=dict(self.environment))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(code=result.exit_code, output=result.stdout, errors=result.stderr)
