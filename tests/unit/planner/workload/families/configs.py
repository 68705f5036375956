"""Configurations read, or the error that refuses them."""

from collections.abc import Mapping

import pytest

from planner.errors import InvalidRequest
from planner.workload.huggingface import workload_from_config
from planner.workload.layers import Workload


def refusal(config: Mapping[str, object]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        workload_from_config(config)
    return caught.value


def model_or_refusal(config: Mapping[str, object]) -> Workload | InvalidRequest:
    try:
        return workload_from_config(config)
    except InvalidRequest as error:
        return error
