"""Plans of two and four ranks run over gloo: numbers as of one process, bytes of states as predicted."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.cli.commands import Command

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
EXPERTS = {
    **CONFIG,
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
}
TOLERANCE = 0.1
ON_HOST = json.dumps({"parameters": 1, "gradients": 1, "optimizer": 1})
TWO_RANKS = {
    "whole replicas": ("data_parallel=2", "zero_stage=0"),
    "optimizer sharded": ("data_parallel=2", "zero_stage=1"),
    "all sharded, recomputed": ("data_parallel=2", "zero_stage=3", "recompute=full"),
    "tensors split": ("tensor_parallel=2", "micro_batch_size=2", "sequence_parallel=false"),
    "tensors and sequence split": ("tensor_parallel=2", "micro_batch_size=2", "sequence_parallel=true"),
    "pipeline": ("pipeline_parallel=2", "schedule=1f1b"),
    "all forward first": ("pipeline_parallel=2", "schedule=gpipe", "recompute=selective"),
    "interleaved": ("pipeline_parallel=2", "schedule=interleaved", "virtual_stages=2"),
    "breadth first": ("pipeline_parallel=2", "schedule=breadth-first", "virtual_stages=2"),
    "weights apart": ("pipeline_parallel=2", "schedule=zb-h1"),
    "folded, weights apart": ("pipeline_parallel=2", "schedule=zb-v"),
    "folded both ways": ("pipeline_parallel=2", "schedule=dualpipe-v"),
    "all sharded, on the host": ("data_parallel=2", "zero_stage=3", f"offload={ON_HOST}"),
}
AXES = {
    "whole replicas": {"data"},
    "optimizer sharded": {"data"},
    "all sharded, recomputed": {"data"},
    "tensors split": {"tensor"},
    "tensors and sequence split": {"tensor"},
    "pipeline": {"pipeline"},
    "all forward first": {"pipeline"},
    "interleaved": {"pipeline"},
    "breadth first": {"pipeline"},
    "weights apart": {"pipeline"},
    "folded, weights apart": {"pipeline"},
    "folded both ways": {"pipeline"},
    "all sharded, on the host": {"data"},
}
FOUR_RANKS = {
    "split and all sharded": ("data_parallel=2", "tensor_parallel=2", "zero_stage=3", "micro_batch_size=2"),
    "pipeline of sharded optimizers": ("data_parallel=2", "pipeline_parallel=2", "zero_stage=1"),
}
THREE_RANKS = {
    "three replicas": ("data_parallel=3", "zero_stage=0"),
    "pipeline of three": ("pipeline_parallel=3", "schedule=1f1b"),
    "sharded over three": ("data_parallel=3", "zero_stage=3"),
}
OF_EXPERTS = {
    "experts on both ranks": ("data_parallel=2", "expert_parallel=1", "zero_stage=0"),
    "experts over ranks": ("data_parallel=2", "expert_parallel=2", "zero_stage=0"),
    "experts over ranks, recomputed": (
        *("data_parallel=2", "expert_parallel=2", "zero_stage=0", "micro_batch_size=2"),
        "recompute=full",
    ),
    "experts sharded as the rest": ("data_parallel=2", "expert_parallel=1", "zero_stage=3"),
}
OF_EXPERTS_ON_FOUR = {
    "experts over ranks, twice": ("data_parallel=4", "expert_parallel=2", "zero_stage=0"),
    "experts over ranks in a pipeline": (
        *("data_parallel=2", "pipeline_parallel=2", "expert_parallel=2", "zero_stage=0"),
        "schedule=1f1b",
    ),
}


@pytest.fixture(scope="module")
def meshplan(tmp_path_factory: pytest.TempPathFactory) -> Command:
    folder = tmp_path_factory.mktemp("trials")
    return Command(environment={"MESHPLAN_DATABASE_URL": f"sqlite:///{folder / 'meshplan.sqlite3'}"})


def run(
    plans: Mapping[str, tuple[str, ...]],
    *,
    ranks: int,
    meshplan: Command,
    folder: Path,
    model: Mapping[str, Any] = CONFIG,
    samples: int = 4,
) -> dict[str, dict[str, Any]]:
    """Return the reports of plans, each predicted and then run, by their names."""
    config = folder / "config.json"
    config.write_text(json.dumps(model))
    files = []
    for number, words in enumerate(plans.values()):
        choices = [text for word in words for text in ("--plan", word)]
        job = ("--global-batch", str(samples), "--sequence", "8", "--precision", "fp32", "--framework", "any")
        ended = meshplan(
            "evaluate", "--model", str(config), "--cluster", f"t4:{ranks}", *job, *choices, "--json"
        )
        assert ended.code == 0, ended.output
        files.append(folder / f"{number}.json")
        files[-1].write_text(ended.output)
    ended = meshplan("trial", *map(str, files), "--device", "cpu", "--steps", "1", "--json")
    assert ended.code == 0, ended.output + ended.errors
    return dict(zip(plans, ended.document, strict=True))


@pytest.fixture(scope="module")
def reports(meshplan: Command, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return run(TWO_RANKS, ranks=2, meshplan=meshplan, folder=tmp_path_factory.mktemp("two"))


def check(report: Mapping[str, Any]) -> None:
    """Hold a trial to one process's losses and to the predicted bytes of its states."""
    numerics = report["numerics"]
    assert numerics["agree"]
    assert numerics["losses"] == pytest.approx(numerics["losses_of_one_process"], rel=1e-5)
    assert numerics["losses"][2] < numerics["losses"][0]
    for row in report["memory"]:
        if row["part"] != "peak_allocated":
            assert row["measured_bytes"] == pytest.approx(row["predicted_bytes"], rel=TOLERANCE), row
    for stage in report["measured"]["stages"]:
        memory = stage["memory_bytes"]
        states = memory["parameters"] + memory["gradients"] + memory["optimizer"]
        assert states < memory["peak_allocated"] < memory["process"], memory


@pytest.mark.parametrize("name", TWO_RANKS)
def test_a_plan_of_two_ranks_gives_the_losses_of_one_process_in_the_memory_predicted(
    name: str, reports: dict[str, dict[str, Any]]
) -> None:
    report = reports[name]
    check(report)
    sent = {row["axis"] for stage in report["measured"]["stages"] for row in stage["communication"]}
    assert sent == AXES[name]


def test_recomputation_runs_forward_again(reports: dict[str, dict[str, Any]]) -> None:
    def attention_cores(name: str) -> int:
        rows = reports[name]["measured"]["stages"][0]["operators"]
        return sum(
            row["calls"]
            for row in rows
            if row["family"] == "attention" and not row["operator"].endswith("backward")
        )

    assert attention_cores("all sharded, recomputed") == 2 * attention_cores("whole replicas")


def test_states_on_the_host_are_as_large_as_predicted_there(reports: dict[str, dict[str, Any]]) -> None:
    report, sharded = reports["all sharded, on the host"], reports["all sharded, recomputed"]
    (stage,) = report["measured"]["stages"]
    assert {row["measured_bytes"] for row in report["memory"] if row["part"] != "peak_allocated"} == {0.0}
    states = [row["measured_bytes"] for row in sharded["memory"] if row["part"] != "peak_allocated"]
    assert stage["memory_bytes"]["on_host"] == sum(states)
    assert any("on the host: " in words for words in report["explanation"])


def test_a_sharded_optimizer_hands_round_as_many_bytes_as_it_updates(
    reports: dict[str, dict[str, Any]],
) -> None:
    report = reports["optimizer sharded"]
    (stage,) = report["measured"]["stages"]
    gathered = sum(row["bytes"] for row in stage["communication"] if "gather" in row["operation"])
    reduced = sum(row["bytes"] for row in stage["communication"] if "reduce_scatter" in row["operation"])
    assert gathered == reduced == 1.5 * stage["memory_bytes"]["parameters"]


def test_trials_are_listed_and_shown_again(meshplan: Command, reports: dict[str, dict[str, Any]]) -> None:
    listed = meshplan("trials", "list", "--json").document
    first = reports["whole replicas"]
    assert {row["id"] for row in listed} >= {report["id"] for report in reports.values()}
    assert meshplan("trials", "show", first["id"], "--json").document == first
    assert f"trial {first['id']}" in meshplan("trials", "show", first["id"]).output


def test_plans_of_four_ranks_join_two_kinds_of_parallelism(meshplan: Command, tmp_path: Path) -> None:
    reports = run(FOUR_RANKS, ranks=4, meshplan=meshplan, folder=tmp_path)
    for report in reports.values():
        check(report)
    sent = [
        {row["axis"] for stage in report["measured"]["stages"] for row in stage["communication"]}
        for report in reports.values()
    ]
    assert sent == [{"data", "tensor"}, {"data", "pipeline"}]


def test_plans_of_three_ranks_give_the_losses_of_one_process(meshplan: Command, tmp_path: Path) -> None:
    reports = run(THREE_RANKS, ranks=3, meshplan=meshplan, folder=tmp_path, samples=6)
    for report in reports.values():
        check(report)


def test_experts_over_two_ranks_give_the_losses_of_one_process(meshplan: Command, tmp_path: Path) -> None:
    reports = run(OF_EXPERTS, ranks=2, meshplan=meshplan, folder=tmp_path, model=EXPERTS)
    for report in reports.values():
        check(report)
    exchanges = {
        name: [
            row["calls"]
            for stage in report["measured"]["stages"]
            for row in stage["communication"]
            if row["operation"].startswith("alltoall")
        ]
        for name, report in reports.items()
    }
    # Two layers of two micro-batches: counts, tokens there and back, and the gradients of both.
    assert exchanges["experts on both ranks"] == exchanges["experts sharded as the rest"] == []
    assert sum(exchanges["experts over ranks"]) == 2 * 2 * 5


def test_experts_over_four_ranks_give_the_losses_of_one_process(meshplan: Command, tmp_path: Path) -> None:
    reports = run(OF_EXPERTS_ON_FOUR, ranks=4, meshplan=meshplan, folder=tmp_path, model=EXPERTS)
    for report in reports.values():
        check(report)
    (stage,) = reports["experts over ranks, twice"]["measured"]["stages"]
    assert {row["axis"] for row in stage["communication"]} == {"data", "expert"}
