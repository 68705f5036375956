import pytest

from api.pages.verdict import status_word, verdict
from planner.plan import Status
from tests.unit.api.pages.documents import evaluated, planned, unfinished

NBSP = "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize("status", Status)
def test_every_ending_has_a_word_a_sign_and_a_sentence(status: Status) -> None:
    shown = status_word(status, "done")
    assert shown.word
    assert shown.sign
    assert shown.tone in {"good", "warn", "bad"}
    assert shown.sentence.endswith(".")


@pytest.mark.parametrize(
    ("state", "word"),
    [("queued", "Waiting"), ("running", "Planning"), ("cancelled", "Cancelled"), ("failed", "Failed")],
)
def test_a_request_without_an_ending_says_how_far_it_is(state: str, word: str) -> None:
    assert verdict(unfinished(state)).word == word


def test_what_is_left_to_gain_is_said() -> None:
    document = planned() | {"status": "feasible"}
    document["certificate"]["relative_gap"] = 0.031
    assert verdict(document).sentence.endswith(f"at most 3.1{NBSP}% left to gain.")


def test_a_plan_that_does_not_fit_says_by_how_much() -> None:
    assert verdict(evaluated()).sentence == f"Stage 0 needs 7.5{NBSP}GiB more than its devices have."


def test_a_plan_that_fails_elsewhere_does_not_blame_the_devices() -> None:
    document = planned() | {"status": "does_not_fit"}
    assert verdict(document).sentence == "A stage needs more memory than its devices have."


def test_a_word_that_is_new_is_shown_as_it_is() -> None:
    assert status_word("postponed", "done").word == "postponed"
