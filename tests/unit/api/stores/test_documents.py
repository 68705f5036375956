import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.stores.documents import document_digest

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(document=st.dictionaries(st.text(), VALUES))
def test_the_digest_does_not_depend_on_the_order_of_keys(document: dict[str, object]) -> None:
    assert document_digest(dict(reversed(document.items()))) == document_digest(document)


@given(document=st.dictionaries(st.text(), VALUES))
def test_the_digest_survives_the_wire(document: dict[str, object]) -> None:
    assert document_digest(json.loads(json.dumps(document))) == document_digest(document)


@pytest.mark.parametrize("other", [{"a": 2}, {"a": [1]}, {"b": 1}, {"a": 1, "b": None}, {"a": "1"}])
def test_another_document_has_another_digest(other: dict[str, object]) -> None:
    assert document_digest(other) != document_digest({"a": 1})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_has_no_digest(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        document_digest({"seconds": value})
