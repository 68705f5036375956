"""Flat words of a plan, found in its full form."""

import pytest

from api.schemas.places import pointer_in_full_form


@pytest.mark.parametrize(
    ("flat", "full"),
    [
        ("/plan/tensor_parallel", "/plan/mesh/tensor_parallel"),
        ("/plan/micro_batch_size", "/plan/batch/micro_batch_size"),
        ("/plan/virtual_stages", "/plan/schedule/virtual_stages"),
        ("/plan/schedule", "/plan/schedule/name"),
        ("/plan/zero_stage", "/plan/sharding/zero_stage"),
        ("/plan/stages", "/plan/stages"),
        ("/plan/sharding/optimizer", "/plan/sharding/optimizer"),
    ],
)
def test_flat_words_have_their_place_in_the_full_form(flat: str, full: str) -> None:
    assert pointer_in_full_form(flat) == full
