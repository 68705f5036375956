"""The names that are offered in place of one that nothing has."""

import pytest

from planner.names import nearest_names

KNOWN = ("h100-sxm/published", "h200-sxm/published", "A100-SXM4-80GB", "b200")


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("h100", "h100-sxm/published"),
        ("H200-sxm/publisht", "h200-sxm/published"),
        ("a100-sxm4-80g", "A100-SXM4-80GB"),
        ("a100", "A100-SXM4-80GB"),
        ("b2000", "b200"),
    ],
)
def test_the_nearest_name_comes_first(name: str, first: str) -> None:
    assert nearest_names(name, KNOWN)[0] == first


@pytest.mark.parametrize(
    ("name", "meant"),
    [("tp", "tensor_parallel"), ("PP", "pipeline_parallel"), ("mbs", "micro_batch_size")],
)
def test_an_abbreviation_means_the_words_it_begins(name: str, meant: str) -> None:
    known = ("all_to_all_degree", "tensor_parallel", "pipeline_parallel", "micro_batch_size", "mb")
    assert nearest_names(name, known)[0] == meant


def test_where_nothing_is_near_some_are_offered() -> None:
    assert len(nearest_names("zzzzzz", KNOWN)) == 3
    assert nearest_names("", ("only",)) == ("only",)


def test_no_more_are_offered_than_wanted() -> None:
    assert len(nearest_names("h", KNOWN, limit=1)) == 1
