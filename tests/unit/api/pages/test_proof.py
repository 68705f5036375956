from typing import Any

import pytest

from api.pages.proof import certificate_view, provenance_view
from tests.unit.api.pages.documents import infeasible, planned

NBSP = "\N{NO-BREAK SPACE}"


def _certificate(**changes: object) -> dict[str, Any]:
    certificate: dict[str, Any] = planned()["certificate"]
    return certificate | changes


def test_a_certificate_says_value_bound_meshes_and_space() -> None:
    view = certificate_view(_certificate())
    assert view is not None
    assert (view.value, view.lower_bound, view.gap) == (f"137.6{NBSP}s", f"137.6{NBSP}s", f"0.0{NBSP}%")
    assert view.meshes == "4,120: 4,096 ruled out by a bound, 24 solved exactly"
    assert view.plans_in_space == f"1.3{NBSP}×{NBSP}10¹⁴"
    assert view.solve_time == "614 ms"


def test_dimensions_stand_by_how_they_were_decided_the_searched_first() -> None:
    view = certificate_view(_certificate())
    assert view is not None
    assert [how for how, _ in view.dimensions] == ["searched", "fixed by framework", "fixed by user"]
    assert view.dimensions[1:] == (
        ("fixed by framework", ("context parallel",)),
        ("fixed by user", ("offload",)),
    )


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({}, "Under these cost tables, no plan of the space described here is faster."),
        (
            {"relative_gap": 0.02},
            (
                "Under these cost tables, no plan of the space described here is faster "
                f"by more than 2.0{NBSP}%."
            ),
        ),
        (
            {"relative_gap": 0.03, "proven_optimal": False},
            f"The search was cut short: no plan is below the bound, so at most 3.0{NBSP}% are left to gain.",
        ),
        ({"value": None, "relative_gap": None}, "No plan of the space described here was found."),
    ],
)
def test_a_certificate_says_what_it_proves(changes: dict[str, Any], headline: str) -> None:
    view = certificate_view(_certificate(**changes))
    assert view is not None
    assert view.headline == headline


def test_what_a_search_without_a_plan_lacks_is_left_open() -> None:
    view = certificate_view(_certificate(value=None, relative_gap=None, plans_in_space=None))
    assert view is not None
    assert (view.value, view.gap, view.plans_in_space) == ("–", "–", "too many to count")


def test_another_objective_has_its_own_unit() -> None:
    view = certificate_view(_certificate(unit="USD", value=12.5, lower_bound=12.25))
    assert view is not None
    assert (view.value, view.lower_bound) == ("12.5 USD", "12.25 USD")


def test_an_evaluation_has_no_certificate() -> None:
    assert certificate_view(None) is None


def test_provenance_adds_up_and_names_the_measurements() -> None:
    view = provenance_view(planned())
    assert view is not None
    assert sum(float(share.split(NBSP)[0]) for _, share, _ in view.shares) == pytest.approx(100)
    assert sum(segment.width for segment in view.segments) == pytest.approx(100)
    assert view.profiles == (("h100-sxm/published", "9f2c41d07be3"),)


def test_nothing_predicted_comes_from_nowhere() -> None:
    assert provenance_view(infeasible()) is None
