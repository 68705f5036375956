"""Choices of a plan that contradict themselves are refused."""

import pytest
from pydantic import ValidationError

from api.schemas.choices import RecomputeDocument, ShardingDocument, TierSharesDocument
from planner.strategy import Offload


def test_shares_that_add_up_to_the_whole_state_are_taken() -> None:
    shares = TierSharesDocument.model_validate({"cpu": 0.7, "nvme": 0.3})
    assert shares.to_offload() == Offload(cpu=0.7, nvme=0.3)


def test_shares_of_more_than_the_state_are_refused() -> None:
    with pytest.raises(ValidationError, match="more than the whole state"):
        TierSharesDocument.model_validate({"cpu": 0.7, "nvme": 0.4})


def test_modules_go_with_selective_recomputation_alone() -> None:
    assert RecomputeDocument.model_validate({"mode": "selective", "modules": ["core_attention"]}).modules
    with pytest.raises(ValidationError, match="selective"):
        RecomputeDocument.model_validate({"mode": "full", "modules": ["core_attention"]})


@pytest.mark.parametrize(("zero_stage", "state"), [(0, "optimizer"), (1, "gradients"), (1, "parameters")])
def test_a_zero_stage_that_keeps_a_state_whole_does_not_split_it(zero_stage: int, state: str) -> None:
    with pytest.raises(ValidationError, match=f"splits {state} over 2 ranks"):
        ShardingDocument.model_validate({"zero_stage": zero_stage, state: 2})
