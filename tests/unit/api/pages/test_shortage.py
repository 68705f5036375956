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
    assert view.link == f"/?from={infeasible()['id']}&num_devices=32"


def test_a_change_may_be_of_any_kind() -> None:
    change = {"/constraints/fixed/sequence_parallel": True, "/job/precision": "bf16"}
    view = nearest_fit_view({"id": "1", "nearest_fit": {"change": change, "plan": plan()}})
    assert view is not None
    assert view.changes == (("sequence parallel", "yes"), ("precision", "bf16"))
    assert view.link == ""


def test_a_request_that_fits_lacks_nothing() -> None:
    assert shortage_rows(planned()) == ()
    assert nearest_fit_view(planned()) is None


def test_a_broken_rule_names_field_and_nearest_legal_values() -> None:
    (row,) = violation_rows(illegal())
    assert (row.field, row.pointer) == ("tensor parallel", "/plan/tensor_parallel")
    assert [fix.text for fix in row.nearest] == ["4", "8"]
    assert row.nearest[0].link == f"/?from={illegal()['id']}&tensor_parallel=4"


def test_a_value_that_no_field_takes_is_told_without_a_link() -> None:
    document = illegal()
    document["violations"][0]["pointer"] = "/plan/mesh/rank_order"
    (row,) = violation_rows(document)
    assert {fix.link for fix in row.nearest} == {""}
