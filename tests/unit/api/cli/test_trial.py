"""Trials from the side of the command: what it asks to run, and what it makes of what was measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.cli.commands import Command, Ended

JOB = ("--model", "gpt-2-124m", "--cluster", "t4:2", "--global-batch", "4", "--sequence", "64")
PLAN = ("--plan", "data_parallel=2", "--plan", "zero_stage=0")


def written(meshplan: Command, folder: Path, *options: str, framework: str = "pytorch") -> Path:
    ended = meshplan("evaluate", *JOB, *PLAN, "--framework", framework, *options, "--json")
    assert ended.code == 0, ended.output
    path = folder / "plan.json"
    path.write_text(ended.output)
    return path


def order_of(meshplan: Command, plan: Path) -> Any:  # noqa: ANN401 - any JSON
    order = plan.with_name("order.json")
    ended = meshplan("trial", str(plan), "--write-order", str(order))
    assert ended.code == 0, ended.errors
    return json.loads(order.read_text())


def measured(path: Path, *, agree: bool | None = True, entries: int = 1) -> Path:
    """Write what a run of one stage may have measured."""
    row = {"calls": 3, "seconds": 0.25, "bytes": 1024.0}
    stage = {
        "stage": 0,
        "memory_bytes": {
            "parameters": 1.0,
            "gradients": 1.0,
            "optimizer": 2.0,
            "peak_of_passes": 8.0,
            "peak_allocated": 9.0,
            "process": 99.0,
        },
        "operators": [{"phase": "forward", "operator": "mm", "family": "matrix_product", **row}],
        "communication": [{"axis": "data", "operation": "allreduce", **row}],
    }
    entry = {
        "device": "cpu-a-1c",
        "step_time": {"median_seconds": 2.0, "spread_seconds": 0.5},
        "stages": [stage],
        "numerics": {"agree": agree, "losses": [5.5, 5.25]},
    }
    path.write_text(json.dumps([entry] * entries))
    return path


@pytest.fixture
def plan(meshplan: Command, tmp_path: Path) -> Path:
    return written(meshplan, tmp_path, "--precision", "fp32")


def test_an_order_holds_the_chain_the_plan_and_the_job(meshplan: Command, plan: Path) -> None:
    order = order_of(meshplan, plan)
    assert [layer["kind"] for layer in order["layers"]] == ["embedding", "decoder", "norm", "head"]
    assert order["plan"] == json.loads(plan.read_text())["plan"]
    assert order["job"] == {
        "sequence_length": 64,
        "precision": "fp32",
        "parameter_dtype": "fp32",
        "optimizer": "adamw",
        "unfused_attention": False,
    }


@pytest.mark.parametrize(
    ("options", "framework", "dtype"),
    [
        (("--cluster", "l4:2", "--precision", "bf16"), "pytorch", "fp32"),
        (
            ("--cluster", "l4:2", "--precision", "bf16", "--job", "master_weight_dtype=bf16"),
            "pytorch",
            "bf16",
        ),
        (("--cluster", "l4:2", "--precision", "bf16"), "megatron-core", "fp32"),
    ],
)
def test_parameters_are_narrow_where_they_have_no_wide_master(
    meshplan: Command, tmp_path: Path, options: tuple[str, ...], framework: str, dtype: str
) -> None:
    plan = written(meshplan, tmp_path, *options, framework=framework)
    assert order_of(meshplan, plan)["job"]["parameter_dtype"] == dtype


def test_what_was_measured_elsewhere_is_reported_and_kept(meshplan: Command, plan: Path) -> None:
    found = measured(plan.with_name("measured.json"))
    ended = meshplan("trial", str(plan), "--measured", str(found))
    assert ended.code == 0
    assert "losses of the first steps: 5.5000, 5.2500 (as of one process)" in ended.output
    rows = {line[:24].strip(): line.split()[-2:] for line in ended.output.splitlines()}
    assert rows["step time"] == ["2", "s"]
    assert rows["stage 0 peak allocated"] == ["9", "B"]
    assert "planned for T4-16GB, run on cpu-a-1c" in ended.errors
    (kept,) = meshplan("trials", "list", "--json").document
    assert kept["id"] in ended.output
    assert kept["id"] in meshplan("trials", "list").output
    assert meshplan("trials", "show", kept["id"]).output == ended.output
    assert meshplan("trials", "show", kept["id"], "--json").document == kept


def test_a_plan_of_a_search_is_tried_as_well(meshplan: Command, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    ended = meshplan("plan", *JOB, "--precision", "fp32", "--framework", "pytorch", "--json")
    plan.write_text(ended.output)
    assert order_of(meshplan, plan)["plan"] == ended.document["plan"]


def test_losses_of_another_model_are_a_failure(meshplan: Command, plan: Path) -> None:
    found = measured(plan.with_name("measured.json"), agree=False)
    ended = meshplan("trial", str(plan), "--measured", str(found))
    assert ended.code == 1
    assert "NOT those of one process" in ended.output


def refused(ended: Ended, reason: str) -> bool:
    return ended.code == 2 and reason in " ".join(ended.errors.split())


def test_what_is_no_plan_is_refused(meshplan: Command, plan: Path) -> None:
    document = json.loads(plan.read_text())
    for change, reason in (
        ({"plan": None}, "a result without a plan"),
        ({"prediction": None}, "a result without a plan"),
        ({"plan": {}}, "mesh"),
    ):
        plan.write_text(json.dumps(document | change))
        assert refused(meshplan("trial", str(plan)), reason)
    plan.write_text(json.dumps([]))
    assert refused(meshplan("trial", str(plan)), "no result")


def test_models_without_a_sequence_are_refused(meshplan: Command, tmp_path: Path) -> None:
    plan = written(meshplan, tmp_path, "--precision", "fp32")
    document = json.loads(plan.read_text())
    document["request"]["model"] = {"preset": "resnet-50"}
    document["request"]["job"] |= {"sequence_length": None, "loss": "classification"}
    plan.write_text(json.dumps(document))
    assert refused(meshplan("trial", str(plan)), "without a sequence")


def test_a_file_of_other_measurements_is_refused(meshplan: Command, plan: Path) -> None:
    found = measured(plan.with_name("measured.json"), entries=2)
    assert refused(meshplan("trial", str(plan), "--measured", str(found)), "1 plans")


def test_one_order_is_written_for_one_plan(meshplan: Command, plan: Path) -> None:
    order = plan.with_name("order.json")
    assert refused(meshplan("trial", str(plan), str(plan), "--write-order", str(order)), "one plan")
    assert not order.exists()


def test_what_a_trial_does_not_have_is_told_by_the_command(meshplan: Command, tmp_path: Path) -> None:
    plan = written(meshplan, tmp_path, "--precision", "fp16", framework="any")
    assert refused(meshplan("trial", str(plan), "--device", "cpu"), "a trial has no precision fp16")


def test_an_unknown_trial_is_told(meshplan: Command) -> None:
    unknown = "00000000-0000-0000-0000-000000000000"
    assert refused(meshplan("trials", "show", unknown), f"no trial {unknown}")
