from api.pages.alternatives import alternative_rows
from tests.unit.api.pages.documents import infeasible, planned

NBSP = "\N{NO-BREAK SPACE}"


def test_an_alternative_says_what_it_costs() -> None:
    slower, tie = alternative_rows(planned())
    assert (slower.why, slower.step_time, slower.change) == (
        "the best without a pipeline",
        f"162.8{NBSP}s",
        f"+18.3{NBSP}%",
    )
    assert slower.peak == f"65.6{NBSP}GiB"
    assert not slower.is_tie
    assert tie.is_tie


def test_nothing_stands_beside_a_request_that_nothing_fits() -> None:
    assert alternative_rows(infeasible()) == ()
