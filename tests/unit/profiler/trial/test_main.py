import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler.trial.__main__ import main
from tests.unit.profiler.trial.orders import chain, document


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def run(folder: Path, *orders: dict[str, Any], options: tuple[str, ...] = ()) -> tuple[int, Path]:
    output = folder / "measured.json"
    paths = []
    for number, order in enumerate(orders):
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(json.dumps(order))
    arguments = [*map(str, paths), "--output", str(output), "--device", "cpu", "--steps", "2", *options]
    return main(arguments), output


def test_a_plan_of_one_rank_gives_the_losses_of_one_process(tmp_path: Path) -> None:
    given = document(recompute={"mode": "full", "modules": []})
    code, output = run(tmp_path, given)
    assert code == 0
    (measured,) = json.loads(output.read_text())
    assert measured["numerics"]["agree"]
    assert measured["numerics"]["losses"] == pytest.approx(measured["numerics"]["losses_of_one_process"])
    first, second, third = measured["numerics"]["losses"]
    assert first > second > third
    (stage,) = measured["stages"]
    memory = stage["memory_bytes"]
    parameters = 4 * (2 * 32 * 16 + 2 * (2 * 16 + 2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 24) + 16)
    assert (memory["parameters"], memory["gradients"], memory["optimizer"]) == (
        parameters,
        parameters,
        2 * parameters,
    )
    assert memory["process"] > memory["peak_allocated"] > 4 * parameters
    assert {row["phase"] for row in stage["operators"]} == {"forward", "backward", "optimizer"}
    assert {row["family"] for row in stage["operators"]} == {"matrix_product", "attention", "memory_pass"}
    assert len(measured["step_time"]["samples_seconds"]) == 2


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 0), ("adam", 2), ("adamw", 2)])
def test_an_optimizer_keeps_the_states_that_it_has(tmp_path: Path, optimizer: str, states: int) -> None:
    code, output = run(
        tmp_path,
        document(job={"optimizer": optimizer}),
        options=("--without-reference", "--warm-up-steps", "1"),
    )
    assert code == 0
    (measured,) = json.loads(output.read_text())
    memory = measured["stages"][0]["memory_bytes"]
    assert memory["optimizer"] == states * memory["parameters"]
    assert measured["numerics"]["agree"] is None


@pytest.mark.parametrize(
    ("precision", "parameter_dtype", "width"), [("bf16", "fp32", 4), ("bf16", "bf16", 2)]
)
def test_narrow_products_run_with_wide_or_narrow_parameters(
    tmp_path: Path, precision: str, parameter_dtype: str, width: int
) -> None:
    wide_code, wide = run(tmp_path, document())
    wide_bytes = json.loads(wide.read_text())[0]["stages"][0]["memory_bytes"]["parameters"]
    code, output = run(tmp_path, document(job={"precision": precision, "parameter_dtype": parameter_dtype}))
    assert (wide_code, code) == (0, 0)
    (measured,) = json.loads(output.read_text())
    assert measured["numerics"]["agree"]
    assert measured["stages"][0]["memory_bytes"]["parameters"] == wide_bytes * width / 4


@pytest.mark.parametrize(
    ("orders", "reason"),
    [
        ((document(context_parallel=2),), "context parallel"),
        ((document(layers=chain(window=4)),), "window"),
        ((document(), document(data_parallel=2)), "one number of ranks"),
    ],
)
def test_what_a_trial_does_not_have_is_told_in_a_line(
    tmp_path: Path, orders: tuple[dict[str, Any], ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = run(tmp_path, *orders)
    assert code == 2
    assert reason in capsys.readouterr().err
    assert not output.exists()


def test_plans_that_run_in_turn_give_what_they_give_one_by_one(tmp_path: Path) -> None:
    orders = (document(), document(recompute={"mode": "full", "modules": []}))
    (tmp_path / "turns").mkdir()
    _, by_themselves = run(tmp_path, *orders, options=("--without-reference",))
    code, in_turn = run(
        tmp_path / "turns", *orders, options=("--without-reference", "--in-turn", "--without-account")
    )
    assert code == 0
    pairs = zip(json.loads(by_themselves.read_text()), json.loads(in_turn.read_text()), strict=True)
    for alone, turned in pairs:
        assert turned["numerics"]["losses"] == pytest.approx(alone["numerics"]["losses"])
        assert len(turned["step_time"]["samples_seconds"]) == 2
        (stage,), (stage_alone,) = turned["stages"], alone["stages"]
        assert stage["operators"] == []
        peaks = (stage["memory_bytes"]["peak_allocated"], stage_alone["memory_bytes"]["peak_allocated"])
        assert peaks[0] == peaks[1]
