import json
import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from api.cli.evaluate import command as evaluate
from api.cli.plan import command as plan
from api.cli.request_options import add_constraints, pairs, request_document
from api.pages.command_line import meshplan_command
from api.pages.form_fields import Verb
from api.pages.http_request import without_defaults
from tests.unit.api.pages.test_form_values import REQUESTS

SHORT: dict[str, Any] = {
    "model": {"preset": "llama-3-8b"},
    "cluster": {"preset": "h100-sxm", "num_devices": 8},
    "job": {"global_batch_size": 128, "sequence_length": 8192},
}


def _understood(words: list[str]) -> dict[str, Any]:
    """Return the request that the command line makes of options."""
    command = {"plan": plan, "evaluate": evaluate}[words[1]]
    options = command.make_context(words[1], words[2:]).params
    document: dict[str, Any] = request_document(None, options)
    if words[1] == "plan":
        constraints = {name: options[name] for name in ("fix", "bound", "offload", "forbid", "allow")}
        add_constraints(document, **constraints)
    else:
        document["plan"] = pairs("--plan", options["plan_words"])
    return document


@pytest.mark.parametrize(("document", "verb"), REQUESTS.values(), ids=list(REQUESTS))
def test_a_command_asks_for_the_request_it_was_made_of(document: Mapping[str, Any], verb: Verb) -> None:
    is_evaluation = verb is Verb.EVALUATE
    short = without_defaults(document, is_evaluation=is_evaluation)
    command = meshplan_command(short, is_evaluation=is_evaluation)
    if "\n" in command:
        said = json.loads("\n".join(command.splitlines()[1:-1]))
    else:
        said = _understood(shlex.split(command))
    assert without_defaults(said, is_evaluation=is_evaluation) == short


def test_a_short_request_is_told_in_options() -> None:
    assert meshplan_command(SHORT, is_evaluation=False) == (
        "meshplan plan --model llama-3-8b --cluster h100-sxm:8 --global-batch 128 --sequence 8192"
    )


def test_what_is_solved_again_is_told_by_flags() -> None:
    solver = {"relative_gap": 0.1, "explain": True, "sensitivity": True}
    command = meshplan_command(SHORT | {"solver": solver}, is_evaluation=False)
    assert command.endswith(" --relative-gap 0.1 --explain --sensitivity")
    assert _understood(shlex.split(command))["solver"] == solver


def test_constraints_and_choices_are_options_too() -> None:
    constraints = {"fixed": {"tensor_parallel": 8, "recompute": {"mode": "full"}}, "forbid": ["offload"]}
    assert meshplan_command(SHORT | {"constraints": constraints}, is_evaluation=False).endswith(
        " --fix tensor_parallel=8 --fix recompute=full --forbid offload"
    )
    assert meshplan_command(SHORT | {"plan": {"sequence_parallel": True}}, is_evaluation=True).endswith(
        " --plan sequence_parallel=true"
    )


@pytest.mark.parametrize(
    "further",
    [
        {"model": {"huggingface": {"model_type": "llama"}}},
        {"objective": {"deadline_seconds": 3600}},
        {"job": SHORT["job"] | {"framework_version": "0.19"}},
    ],
)
def test_what_options_cannot_say_is_given_whole(further: dict[str, Any]) -> None:
    first, *document, last = meshplan_command(SHORT | further, is_evaluation=False).splitlines()
    assert (first, last) == ("meshplan plan - <<'JSON'", "JSON")
    assert json.loads("\n".join(document)) == SHORT | further


def test_a_name_stays_one_word_of_the_shell_whatever_stands_in_it() -> None:
    hostile = SHORT | {"model": {"preset": "it's; rm -rf $HOME `id`"}}
    words = shlex.split(meshplan_command(hostile, is_evaluation=False))
    assert words[3] == "it's; rm -rf $HOME `id`"
