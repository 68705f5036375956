from pathlib import Path

import pytest

from planner.planning import evaluate_plan
from planner.validation.evaluation import Evaluator
from planner.validation.requests import question_of
from planner.validation.rows import read_rows
from tests.unit.planner.validation.published import row

PUBLISHED = sorted((Path(__file__).parents[5] / "shared" / "measured").glob("*.csv"))
"""Measurements that may lie beside the project."""


@pytest.mark.parametrize(
    "cells",
    [
        {},
        {"gbs": "128"},
        {"pp": "2", "dp": "2", "recompute": "full"},
        {"framework": "nanotron", "zero_stage": "0"},
        {"gpus": "16", "dp": "8", "inter_link": "IB-NDR400"},
    ],
)
def test_a_row_is_predicted_as_evaluate_would(cells: dict[str, str]) -> None:
    evaluator = Evaluator()
    evaluator.outcome(row())
    question = question_of(row(**cells))
    assert evaluator.prediction(question) == evaluate_plan(question.request, question.plan).prediction


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"layers": ""}, "no layers"),
        ({"hidden": "1e9", "heads": "1e3", "kv_heads": "1e3"}, "hidden (1000000000)"),
        ({"step_time_s": "fast"}, "step_time_s is no number from zero up"),
        ({"step_time_s": "", "oom": "crash_or_oom"}, "it failed, and nothing says whether for memory"),
        (
            {"step_time_s": "", "oom": ""},
            "no step time, tokens per second, peak memory or out-of-memory verdict",
        ),
        ({"tp": "8", "dp": "1", "heads": "4", "kv_heads": "4"}, "illegal: tensor_parallel (8)"),
        ({"gbs": "63"}, "illegal: data_parallel (4) must divide the global batch (63)"),
        ({"precision": "nvfp4"}, "no measurement and no datasheet rate of nvfp4"),
    ],
)
def test_a_row_without_a_prediction_says_why(cells: dict[str, str], reason: str) -> None:
    outcome = Evaluator().outcome(row(**cells))
    assert outcome.prediction is None
    assert outcome.skipped is not None
    assert outcome.skipped.startswith(reason)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_no_published_row_ends_in_an_error(path: Path) -> None:
    reasons = {outcome.skipped for outcome in Evaluator().outcomes(read_rows(path))}
    assert not [reason for reason in reasons if reason and reason.startswith("error")]


def test_a_row_of_adapters_takes_less_memory_than_the_same_row_trained_as_a_whole() -> None:
    whole, adapted = (
        Evaluator().outcome(row(notes=notes)).prediction for notes in ("pre-training", "LoRA packed")
    )
    assert whole is not None
    assert adapted is not None
    assert adapted.memory[0].peak_bytes < whole.memory[0].peak_bytes
    assert adapted.step_time_seconds < whole.step_time_seconds
