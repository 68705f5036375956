import pytest

from api.pages.remainder import Remainder, single_word


def test_what_is_taken_is_no_longer_there_and_the_request_stays() -> None:
    request = {"job": {"precision": "bf16", "optimizer": "adam"}, "solver": {}}
    rest = Remainder(request)
    assert rest.take(("job", "precision")) == "bf16"
    assert rest.left() == {"job": {"optimizer": "adam"}}
    assert rest.take(("job", "optimizer")) == "adam"
    assert rest.left() == {}
    assert request == {"job": {"precision": "bf16", "optimizer": "adam"}, "solver": {}}


def test_a_path_that_leads_nowhere_has_nothing() -> None:
    rest = Remainder({"job": {"precision": "bf16"}})
    assert rest.look(("job", "precision", "width")) is None
    assert rest.take(("cluster", "preset")) is None
    assert rest.take(("job", "precision", "width")) is None


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({"mode": "full", "modules": []}, "full"),
        ({"name": "interleaved"}, "interleaved"),
        ({"mode": "selective", "modules": ["mlp"]}, {"mode": "selective", "modules": ["mlp"]}),
        ({"name": "interleaved", "virtual_stages": 2}, {"name": "interleaved", "virtual_stages": 2}),
        ({}, {}),
        (8, 8),
    ],
)
def test_a_choice_with_nothing_but_a_name_is_that_name(value: object, word: object) -> None:
    assert single_word(value) == word
