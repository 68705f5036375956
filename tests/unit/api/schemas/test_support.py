"""What cannot be answered yet is refused by the name of its field."""

import copy
from typing import Any

import pytest

from api.schemas.request import EvaluationRequestDocument, PlanRequestDocument
from api.schemas.support import refuse_unsupported
from planner.errors import InvalidRequest
from tests.unit.api.schemas.test_cluster import LINK, PAIR
from tests.unit.api.schemas.test_plan import LAYERS, STAGE, plan
from tests.unit.api.schemas.test_request import REQUEST

OF_REFERENCE = {"virtual_stage": 0, "layers": [{**LAYERS, "of": "draft"}]}


def pointer_refused(document: dict[str, Any]) -> str:
    schema = EvaluationRequestDocument if "plan" in document else PlanRequestDocument
    with pytest.raises(InvalidRequest) as caught:
        refuse_unsupported(schema.model_validate(document).normalised())
    return caught.value.pointer


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("job/sequence_lengths", [[128, 1.0]]),
        ("objective/minimize", "cost"),
        ("objective/tokens", 1e12),
        ("constraints/fixed/experts", {"zero_stage": 1, "optimizer": 2}),
    ],
)
def test_a_field_that_cannot_be_answered_is_named(place: str, value: object) -> None:
    document = copy.deepcopy(REQUEST)
    here = document
    *outer, last = place.split("/")
    for step in outer:
        here = here.setdefault(step, {})
    here[last] = value
    assert pointer_refused(document) == f"/{place}"


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"offload": {"parameters": {"nvme": 0.5}}}, "/plan/offload/parameters/nvme"),
        ({"offload": {"optimizer": {"nvme": 0.5}}}, "/plan/offload/optimizer/nvme"),
        (plan(sharding={"experts": {"zero_stage": 1}}), "/plan/sharding/experts"),
        (
            plan(stages=[{**STAGE, "chunks": [{"virtual_stage": 0, "layers": [{**LAYERS, "of": "draft"}]}]}]),
            "/plan/stages/0/chunks/0/layers/0/of",
        ),
    ],
)
def test_a_choice_of_a_plan_that_cannot_be_priced_is_named(given: dict[str, Any], pointer: str) -> None:
    assert pointer_refused({**REQUEST, "plan": given}) == pointer


def test_what_can_be_answered_passes() -> None:
    joined = {"node_groups": PAIR, "between_groups": [LINK]}
    for document in (REQUEST, {**REQUEST, "cluster": joined}):
        refuse_unsupported(PlanRequestDocument.model_validate(document).normalised())
    refuse_unsupported(EvaluationRequestDocument.model_validate({**REQUEST, "plan": plan()}).normalised())
