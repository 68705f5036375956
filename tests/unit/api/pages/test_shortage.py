from api.pages.shortage import nearest_fit_view, shortage_rows, violation_rows
from tests.unit.api.pages.documents import illegal, infeasible, plan, planned

NBSP = "\N{NO-BREAK SPACE}"


def test_what_is_missing_is_said_exactly() -> None:
    (row,) = shortage_rows(infeasible())
    assert (row.resource, row.where) == ("device memory", "stage 0, node group a100-sxm-40gb")
    assert (row.needed, row.available, row.missing) == (
        f"141.2{NBSP}GiB",
        f"37.1{NBSP}GiB",
        f"104.1{NBSP}GiB",
    )


def test_a_shortage_of_no_stage_names_none() -> None:
    document = infeasible()
    document["shortage"][0] |= {"stage": None, "node_group": ""}
    assert shortage_rows(document)[0].where == ""


def test_the_smallest_change_that_fits_is_named() -> None:
    view = nearest_fit_view(infeasible())
    assert view is not None
    assert view.changes == (("num devices", "32"),)
    assert view.plan.startswith("TP 4")


def test_a_change_may_be_of_any_kind() -> None:
    change = {"/constraints/fixed/sequence_parallel": True, "/job/precision": "bf16"}
    view = nearest_fit_view({"nearest_fit": {"change": change, "plan": plan()}})
    assert view is not None
    assert view.changes == (("sequence parallel", "yes"), ("precision", "bf16"))


def test_a_request_that_fits_lacks_nothing() -> None:
    assert shortage_rows(planned()) == ()
    assert nearest_fit_view(planned()) is None


def test_a_broken_rule_names_field_and_nearest_legal_values() -> None:
    (row,) = violation_rows(illegal())
    assert (row.field, row.pointer, row.nearest) == ("tensor parallel", "/plan/tensor_parallel", ("4", "8"))
