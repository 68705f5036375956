"""``meshplan evaluate``: what a plan of the caller's own would do."""

import json
from pathlib import Path

import pytest

from tests.unit.api.cli.commands import Command
from tests.unit.api.services import EVALUATION, REQUEST

SHORT = ("--model", "gpt-2-124m", "--cluster", "h100-sxm:2", "--global-batch", "16", "--sequence", "1024")
PLAN = ("--plan", "data_parallel=2", "--plan", "micro_batch_size=4")


def test_the_short_form_and_a_request_say_the_same(meshplan: Command) -> None:
    short = meshplan("evaluate", *SHORT, *PLAN, "--json")
    whole = meshplan("evaluate", "-", "--json", given=json.dumps(EVALUATION))
    assert short.code == whole.code == 0
    assert short.document["prediction"] == whole.document["prediction"]
    assert short.document["certificate"] is None


def test_a_person_reads_where_time_and_memory_go(meshplan: Command) -> None:
    output = meshplan("evaluate", *SHORT, *PLAN).output
    for words in ("Fits", "Where the time goes", "Compute", "Memory per device", "optimizer states"):
        assert words in output


def test_an_illegal_plan_ends_with_its_rules(meshplan: Command) -> None:
    ended = meshplan("evaluate", *SHORT, "--plan", "tensor_parallel=5")
    assert ended.code == 2
    assert "Illegal" in ended.output
    assert "/plan/tensor_parallel" in ended.output


def test_a_plan_that_does_not_fit_ends_with_1(meshplan: Command) -> None:
    ended = meshplan("evaluate", *SHORT, "--model", "llama-3-70b", "--plan", "data_parallel=2")
    assert ended.code == 1
    assert "Does not fit" in ended.output


def test_the_plan_of_a_result_gives_the_same_prediction(meshplan: Command, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(meshplan("plan", *SHORT, "--json").output)
    planned = json.loads(file.read_text())
    evaluated = meshplan("evaluate", *SHORT, "--plan", str(file), "--json")
    assert evaluated.code == 0
    assert evaluated.document["prediction"] == planned["prediction"]


def test_words_change_the_plan_of_the_request(meshplan: Command) -> None:
    ended = meshplan("evaluate", "-", "--plan", "recompute=full", "--json", given=json.dumps(EVALUATION))
    assert ended.document["prediction"]["breakdown_seconds"]["recompute"] > 0


@pytest.mark.parametrize(
    ("words", "pointer"),
    [
        (("--plan", "tensor_paralel=2"), "/plan/tensor_paralel"),
        (("--plan", "tensor_parallel=-1"), "/plan/tensor_parallel"),
        (("--plan", 'offload={"optimizer": {"nvme": 0.5}}'), "/plan/offload/optimizer/nvme"),
        (("--offload", "optimizer=1.5"), "/plan/offload/optimizer"),
        (("--plan", "tensor_parallel"), "--plan"),
    ],
)
def test_bad_words_are_problems(meshplan: Command, words: tuple[str, ...], pointer: str) -> None:
    ended = meshplan("evaluate", *SHORT, *words, "--json")
    assert ended.code == 2
    assert ended.document["pointer"] == pointer


def test_what_only_a_search_has_is_refused(meshplan: Command) -> None:
    request = {**REQUEST, "plan": {}, "objective": {"minimize": "step_time"}}
    ended = meshplan("evaluate", "-", "--json", given=json.dumps(request))
    assert ended.code == 2
    assert ended.document["pointer"] == "/objective"
