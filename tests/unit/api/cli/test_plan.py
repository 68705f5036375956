"""``meshplan plan``: by options, by a file, by standard input."""

import json
from pathlib import Path

import jsonschema
import pytest

from api.workspace import open_workspace
from tests.unit.api.cli.commands import Command
from tests.unit.api.services import REQUEST

SHORT = ("--model", "gpt-2-124m", "--cluster", "h100-sxm:2", "--global-batch", "16", "--sequence", "1024")
TINY = ("--model", "llama-3-70b", "--cluster", "a100-sxm-40gb:1", "--global-batch", "1", "--sequence", "2048")


def test_the_short_form_is_answered_for_a_person(meshplan: Command) -> None:
    ended = meshplan("plan", *SHORT)
    assert ended.code == 0
    for words in ("gpt-2-124m on 2 × h100-sxm", "Proven optimal", "Step time", "Certificate", "Why"):
        assert words in ended.output


def test_json_is_the_result_document_and_nothing_else(meshplan: Command) -> None:
    ended = meshplan("plan", *SHORT, "--json")
    assert ended.code == 0
    assert ended.document["status"] == "optimal"
    assert ended.document["request"]["cluster"] == {
        "preset": "h100-sxm",
        "num_devices": 2,
        "between_groups": [],
    }


def test_a_file_standard_input_and_the_short_form_say_the_same(meshplan: Command, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(REQUEST))
    plans = [
        meshplan("plan", *arguments, "--json", given=given).document["plan"]
        for arguments, given in ((SHORT, None), ((str(file),), None), (("-",), json.dumps(REQUEST)))
    ]
    assert plans[0] == plans[1] == plans[2]


def test_any_field_of_the_job_can_be_said(meshplan: Command) -> None:
    adapters = '{"kind": "lora", "rank": 8}'
    ended = meshplan("plan", *SHORT, "--job", f"trainable={adapters}", "--job", "loss=dpo", "--json")
    assert ended.code == 0
    job = ended.document["request"]["job"]
    assert (job["trainable"]["rank"], job["loss"]) == (8, "dpo")


def test_images_need_no_sequence(meshplan: Command) -> None:
    ended = meshplan(
        "plan",
        "--model",
        "vit-b-16",
        "--cluster",
        "h100-sxm:2",
        "--global-batch",
        "64",
        "--images",
        "2",
        "--json",
    )
    assert ended.code == 0
    assert ended.document["request"]["job"]["images_per_sample"] == 2
    assert ended.document["prediction"]["tokens_per_second"] is None
    assert ended.document["prediction"]["samples_per_second"] > 0


def test_options_are_laid_over_the_file(meshplan: Command) -> None:
    ended = meshplan(
        "plan",
        "-",
        "--fix",
        "tensor-parallel=2",
        "--bound",
        "micro_batch_size=1..4",
        "--forbid",
        "offload",
        "--time-limit",
        "10",
        "--memory-fraction",
        "0.9",
        "--profile",
        "h100-sxm/published",
        "--json",
        given=json.dumps(REQUEST),
    )
    request = ended.document["request"]
    assert request["constraints"] == {
        "fixed": {"tensor_parallel": 2},
        "bounds": {"micro_batch_size": [1, 4]},
        "forbid": ["offload"],
        "allow": [],
        "memory_fraction": 0.9,
    }
    assert request["solver"]["time_limit_seconds"] == 10
    assert request["profiles"] == ["h100-sxm/published"]
    assert ended.document["plan"]["mesh"]["tensor_parallel"] == 2


def test_what_binds_and_what_would_help_are_solved_again(meshplan: Command) -> None:
    asked = (*SHORT, "--fix", "micro_batch_size=1", "--explain", "--sensitivity")
    document = meshplan("plan", *asked, "--json").document
    assert document["request"]["solver"]["explain"]
    whys = [entry["why"] for entry in document["sensitivity"]]
    assert whys[1:] == [
        "micro_batch_size left free",
        "quantized communication allowed",
        "One more GiB of memory per device",
        "Twice the devices",
        "Twice the sequence length",
    ]
    cited = {entry["pointer"] for entry in document["explanation"]}
    assert {"/sensitivity/0", "/sensitivity/1"} <= cited
    told = meshplan("plan", *asked).output
    for words in ("Solved again", "Keeping micro_batch_size at 1 binds", "Twice the sequence length"):
        assert words in told


def test_nothing_is_solved_again_unless_asked(meshplan: Command) -> None:
    assert meshplan("plan", *SHORT, "--json").document["sensitivity"] is None
    assert "Solved again" not in meshplan("plan", *SHORT).output


def test_other_plans_are_told_with_what_they_cost(meshplan: Command) -> None:
    told = meshplan("plan", *SHORT).output
    assert "Alternatives" in told
    assert "On 1 of the 2 devices" in told


def test_what_does_not_fit_is_said_exactly(meshplan: Command) -> None:
    ended = meshplan("plan", *TINY, "--json")
    assert ended.code == 1
    document = ended.document
    assert document["status"] == "infeasible"
    assert document["plan"] is None
    shortage = document["shortage"][0]
    assert shortage["needed_bytes"] > shortage["available_bytes"]
    assert "What is missing" in meshplan("plan", *TINY).output


@pytest.mark.parametrize(
    ("arguments", "pointer", "nearest"),
    [
        (("--global-batch", "-1"), "/job/global_batch_size", 1),
        (("--precision", "bf61"), "/job/precision", "bf16"),
        (("--model", "gpt-2-125m"), "/model/preset", "gpt-2-124m"),
        (("--cluster", "h100-sxm"), "/cluster/num_devices", None),
        (("--cluster", "h100-sxm:0"), "/cluster/num_devices", 1),
        (("--cluster", "h100-sxm:two"), "/cluster/num_devices", None),
        (("--cluster", "h100:2"), "/cluster/preset", "h100-sxm"),
        (("--fix", "tensor_paralel=2"), "/constraints/fixed/tensor_paralel", "tensor_parallel"),
        (("--fix", "tensor_parallel=5"), "/constraints/fixed/tensor_parallel", None),
        (("--fix", "tensor_parallel"), "--fix", None),
        (("--bound", "tensor_parallel=8"), "--bound", None),
        (("--bound", "tensor_parallel=8..1"), "/constraints/bounds/tensor_parallel", [1, 8]),
        (("--forbid", "offlod"), "/constraints/forbid/0", "offload"),
        (("--profile", "h100"), "/profiles/0", "h100-sxm/published"),
        (("--framework", "megatron"), "/job/framework", "megatron-core"),
    ],
)
def test_bad_input_is_a_problem_with_its_pointer(
    meshplan: Command, arguments: tuple[str, ...], pointer: str, nearest: object
) -> None:
    ended = meshplan("plan", *SHORT, *arguments, "--json")
    assert ended.code == 2
    assert ended.document["pointer"] == pointer
    assert nearest is None or nearest in ended.document["nearest_legal"]
    told = meshplan("plan", *SHORT, *arguments)
    assert told.code == 2
    assert told.output == ""
    assert pointer in told.errors
    assert "Traceback" not in told.errors


@pytest.mark.parametrize("given", ["", "{", "[" * 100_000, '{"model": NaN', "\x00"])
def test_what_is_no_json_is_a_problem(meshplan: Command, given: str) -> None:
    ended = meshplan("plan", "-", given=given)
    assert ended.code == 2
    assert "standard input" in ended.errors


@pytest.mark.parametrize("given", ["[]", "5", "null", '{"job": 5}', '{"constraints": []}'])
def test_what_is_no_request_is_a_problem(meshplan: Command, given: str) -> None:
    ended = meshplan("plan", "-", "--fix", "tensor_parallel=2", "--global-batch", "4", given=given)
    assert ended.code == 2
    assert "Traceback" not in ended.errors


def test_a_file_that_is_not_there_is_a_problem(meshplan: Command) -> None:
    ended = meshplan("plan", "nowhere.json")
    assert ended.code == 2
    assert "nowhere.json: No such file" in ended.errors


def test_a_setting_that_is_wrong_is_named(meshplan: Command) -> None:
    environment = {**meshplan.environment, "MESHPLAN_PORT": "many"}
    ended = Command(environment=environment)("plan", *SHORT)
    assert ended.code == 2
    assert "MESHPLAN_PORT" in ended.errors


def test_a_database_that_does_not_answer_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "a-folder"
    folder.mkdir()
    ended = Command(environment={"MESHPLAN_DATABASE_URL": f"sqlite:///{folder}"})("plan", *SHORT)
    assert ended.code == 69
    assert "database" in ended.errors


def test_a_plan_is_stored_for_the_pages(meshplan: Command) -> None:
    document = meshplan("plan", *SHORT, "--json").document
    workspace = open_workspace(meshplan.environment["MESHPLAN_DATABASE_URL"])
    (record,) = workspace.plans.recent()
    workspace.close()
    assert str(record.id) == document["id"]
    assert record.status == "optimal"


def test_the_model_may_be_a_configuration(meshplan: Command, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4}))
    ended = meshplan("plan", *SHORT, "--model", str(config), "--num-layers", "4", "--json")
    assert ended.code == 0
    assert ended.document["request"]["model"]["num_layers"] == 4


def test_the_cluster_may_be_a_document(meshplan: Command, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(meshplan("clusters", "show", "h100-sxm:2", "--json").output)
    by_file = meshplan("plan", *SHORT, "--cluster", str(file), "--json").document
    by_name = meshplan("plan", *SHORT, "--json").document
    assert by_file["plan"] == by_name["plan"]


def test_results_are_valid_by_the_published_schema(meshplan: Command) -> None:
    published = json.loads((Path(__file__).parents[4] / "docs" / "openapi.json").read_text())
    schema = {"$ref": "#/components/schemas/ResultDocument", "components": published["components"]}
    for arguments in (SHORT, (*SHORT, "--explain", "--sensitivity"), TINY):
        jsonschema.validate(meshplan("plan", *arguments, "--json").document, schema)
