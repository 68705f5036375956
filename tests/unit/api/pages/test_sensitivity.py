from typing import Any

import pytest

from api.pages.sensitivity import sensitivity_rows
from tests.unit.api.pages.documents import planned, solved_again

NBSP = "\N{NO-BREAK SPACE}"


def test_a_changed_request_shows_its_step_time_and_its_plan() -> None:
    (row,) = sensitivity_rows(solved_again())
    assert (row.why, row.step_time, row.change) == (
        "tensor parallel left free",
        f"120.0{NBSP}s",
        f"\N{MINUS SIGN}12.8{NBSP}%",
    )
    assert row.plan.startswith("TP 4")


def test_a_plan_that_stays_is_called_the_same() -> None:
    (row,) = sensitivity_rows(solved_again(changes_plan=False))
    assert row.plan == "the same"


@pytest.mark.parametrize(
    ("status", "words"), [("infeasible", "nothing fits"), ("unknown", "no plan in time")]
)
def test_a_change_without_a_plan_says_why(status: str, words: str) -> None:
    nothing = dict.fromkeys(("step_time_seconds", "relative_change", "changes_plan", "plan"))
    (row,) = sensitivity_rows(solved_again(status=status, **nothing))
    assert (row.plan, row.step_time, row.change) == (words, "", "")


@pytest.mark.parametrize("document", [planned(), planned() | {"sensitivity": None}])
def test_nothing_is_shown_where_nobody_asked(document: dict[str, Any]) -> None:
    assert sensitivity_rows(document) == ()
