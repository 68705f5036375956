"""``meshplan frameworks``: what each training framework overlaps, keeps, supports and refuses."""

from typing import Final

import click

from api.cli.outcome import problems_told, write_json
from api.cli.tables import write_table
from api.pages.request_summary import words
from api.schemas.catalogue import framework_document
from planner.frameworks import FRAMEWORKS, framework_by_name

EXAMPLES = """\b
Examples:
  meshplan frameworks list
  meshplan frameworks show megatron-core
  meshplan frameworks show torchtitan --release 0.2
"""
APART: Final = {"limits", "grains", "rules"}
"""What of a framework is told in tables of its own; limits are told as rules."""


@click.group(epilog=EXAMPLES)
def command() -> None:
    """List the training frameworks that are known, or show what one does."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def list_command(as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""List the frameworks that a request may name.

    \b
    Example: meshplan frameworks list
    """
    if as_json:
        write_json([dict(framework_document(framework)) for framework in FRAMEWORKS.values()])
        return
    rows = [(framework.name, framework.description) for framework in FRAMEWORKS.values()]
    write_table(("name", "what it is"), rows)


@command.command("show")
@click.argument("name")
@click.option("--release", metavar="VERSION", help="A release of it; the newest that is known.")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def show_command(name: str, release: str | None, as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""Show the traits of a framework, and the rules that its plans keep to.

    \b
    Example: meshplan frameworks show megatron-core --release 0.12
    """
    with problems_told(as_json=as_json):
        traits = framework_document(framework_by_name(name, version=release, pointer=""))
    if as_json:
        write_json(dict(traits))
        return
    rows = [(trait, value) for trait, value in traits.items() if trait not in APART]
    write_table(("trait", "value"), [(words(trait), _shown(value)) for trait, value in rows])
    click.echo()
    grains = traits["grains"].items()
    write_table(("decision", "made once per"), [(words(decision), grain) for decision, grain in grains])
    click.echo()
    write_table(
        ("rule", "what holds", "otherwise"),
        [(rule["name"], rule["holds"], rule["otherwise"]) for rule in traits["rules"]],
    )


def _shown(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case {"mode": mode, "modules": modules}:
            return f"{mode} ({', '.join(modules)})" if modules else str(mode)
        case dict():
            return ", ".join(f"{key} {_shown(inner)}" for key, inner in value.items())
        case list():
            return ", ".join(map(_shown, value))
    return str(value)
