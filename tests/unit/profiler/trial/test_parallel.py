from typing import Any

import pytest

from profiler.trial.errors import PlanCannotRun
from profiler.trial.parallel import refuse_uneven
from tests.unit.profiler.trial.orders import chain, order


def with_entry(number: int, **fields: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of a layer
    layers = chain()
    layers[number] = layers[number] | fields
    return layers


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tensor_parallel": 4}, "2 .*heads"),
        ({"layers": with_entry(3, vocabulary=31)}, "31 words"),
        ({"sequence_parallel": True, "job": {"sequence_length": 7}}, "7 positions"),
        ({"layers": with_entry(3, tied=True)}, "tied head"),
    ],
)
def test_what_ranks_cannot_split_evenly_is_refused(changes: dict[str, Any], reason: str) -> None:
    asked = order(**{"tensor_parallel": 2, **changes})
    with pytest.raises(PlanCannotRun, match=reason):
        refuse_uneven(asked.layers, asked)


def test_what_ranks_split_evenly_is_not_refused() -> None:
    asked = order(tensor_parallel=2, sequence_parallel=True)
    refuse_uneven(asked.layers, asked)
    tied = order(layers=with_entry(3, tied=True))
    refuse_uneven(tied.layers, tied)
