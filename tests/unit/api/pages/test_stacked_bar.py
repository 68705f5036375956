import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.pages.stacked_bar import WHOLE, Segment, stack

parts = st.dictionaries(st.text(min_size=1, max_size=8), st.floats(0, 1e6, allow_nan=False), max_size=12)


@given(parts)
def test_segments_lie_side_by_side_and_fill_the_bar(values: dict[str, float]) -> None:
    total = sum(values.values())
    segments = stack(values, full=total)
    end = 0.0
    for segment in segments:
        assert segment.start == pytest.approx(end)
        end = segment.start + segment.width
    assert end == pytest.approx(WHOLE if segments else 0.0)


def test_what_is_nothing_has_no_segment() -> None:
    assert stack({"compute": 2.0, "offload": 0.0}, full=4.0) == (
        Segment(key="compute", start=0.0, width=50.0),
    )


def test_a_name_stands_only_where_it_has_room() -> None:
    segment = Segment(key="compute", start=0.0, width=20.0)
    assert segment.has_room("Compute")
    assert not segment.has_room("Tensor parallel")
