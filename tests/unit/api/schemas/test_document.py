"""Numbers on the wire are numbers, whole where they count something."""

import pytest
from pydantic import ValidationError

from api.schemas.document import DeviceCount, InputDocument, Name, Quantity


class Document(InputDocument):
    count: DeviceCount = 1
    rate: Quantity = 1.0
    name: Name = "a"


def test_a_whole_float_is_a_count() -> None:
    assert Document.model_validate({"count": 8.0}).count == 8


@pytest.mark.parametrize("value", [True, "8", 8.5, 0, -1, float("nan"), float("inf"), 10**8, None, []])
def test_what_is_no_count_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        Document.model_validate({"count": value})


@pytest.mark.parametrize("value", [True, "1e9", 0, -1.5, float("nan"), float("inf"), 1e30])
def test_what_is_no_rate_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        Document.model_validate({"rate": value})


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00b", "x" * 201, "\ud800"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Document.model_validate({"name": name})


def test_every_field_is_marked_stable_or_experimental() -> None:
    properties = Document.model_json_schema()["properties"]
    assert {field["x-stability"] for field in properties.values()} == {"stable"}
