"""The command ``meshplan``: each of its commands is loaded when it is called for."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Final

import click

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "plan": ("api.cli.plan", "Find the fastest way to train a model on some machines."),
    "evaluate": ("api.cli.evaluate", "Predict what a plan of your own would do."),
    "models": ("api.cli.models", "List the models that are known, or show one."),
    "clusters": ("api.cli.clusters", "List the clusters that are known, or show one."),
    "devices": ("api.cli.devices", "List the devices that are known, or show one."),
    "frameworks": ("api.cli.frameworks", "List the training frameworks, or show what one does."),
    "profiles": ("api.cli.profiles", "List, show, import or delete measurements."),
    "profile": ("api.cli.profile", "Measure this machine, so that it can be planned for."),
    "trial": ("api.cli.trial", "Run a plan for some steps, predicted against measured."),
    "trials": ("api.cli.trials", "List the plans that were run, or show one."),
    "trace": ("api.cli.trace", "Describe a torch module of your own, so that it can be planned for."),
    "validate": ("api.cli.validate", "Report how far predictions lie from published measurements."),
    "serve": ("api.cli.serve", "Serve the HTTP API and the web form."),
}
"""The module of each command, which has it as ``command``, and what it does."""

EXAMPLES: Final = """\b
Examples:
  meshplan plan --model llama-3-70b --cluster h100-sxm:64 --global-batch 1024 --sequence 8192
  meshplan plan REQUEST.json --json
  meshplan models show llama-3-8b

Exit codes: 0 a plan (or: it fits), 1 nothing fits (or: it does not fit), 2 bad input or an illegal plan,
3 the time limit ended the search without any plan.
"""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, so that the others cost nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, loaded now."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the commands that a misspelt one is near to."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            nearest = import_module("planner.names").nearest_names(args[0], COMMANDS)
            raise click.UsageError(f"No command {args[0]!r}. Did you mean {' or '.join(nearest)}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command does, without loading any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="meshplan", message="%(prog)s %(version)s")
def group() -> None:
    """Answer how a model should be trained on given machines, with a proof."""


def main() -> None:
    """Run the command with the arguments of this process."""
    group.main(args=sys.argv[1:], prog_name="meshplan")
