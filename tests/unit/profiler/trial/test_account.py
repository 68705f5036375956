from itertools import count

import pytest
import torch
from torch import nn

from profiler.trial.account import LiveBytes, TimesOperators, family_of

FLOAT_BYTES = 4


def ticking() -> TimesOperators:
    """Times by a clock that goes on by one second whenever it is read."""
    ticks = count()
    return TimesOperators({}, synchronize=lambda: None, now=lambda: float(next(ticks)))


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("mm", "matrix_product"),
        ("scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("mul", "memory_pass"),
    ],
)
def test_an_operator_is_of_a_family(name: str, family: str) -> None:
    assert family_of(name) == family


def test_operators_are_counted_by_phase_with_the_bytes_that_they_are_given() -> None:
    layer = nn.Linear(8, 16, bias=False)
    watcher = ticking()
    with watcher:
        layer(torch.ones(4, 8)).sum().backward()
        watcher.is_in_optimizer = True
        torch.ones(3).mul(2)
    rows = {(row["phase"], row["operator"]): row for row in watcher.account.to_document()["operators"]}
    forward = rows["forward", "mm"]
    assert (forward["calls"], forward["seconds"]) == (1, 1.0)
    assert forward["bytes"] == FLOAT_BYTES * (4 * 8 + 8 * 16)
    assert rows["backward", "mm"]["calls"] == 1
    assert rows["optimizer", "mul"]["bytes"] == FLOAT_BYTES * 3
    assert watcher.account.to_document()["communication"] == []


def test_what_takes_longest_comes_first() -> None:
    watcher = ticking()
    with watcher:
        values = torch.ones(4)
        for _ in range(3):
            values = values.mul(2)
    assert [row["operator"] for row in watcher.account.to_document()["operators"]] == ["mul", "ones"]


def test_the_peak_is_of_what_lives_at_once_with_what_was_there_before() -> None:
    kept = torch.ones(1000)
    watcher = LiveBytes([kept])
    with watcher:
        for _ in range(5):
            kept.mul(2)
        first, second = kept.mul(2), kept.mul(2)
    assert watcher.peak_bytes == FLOAT_BYTES * 3000
    assert first.shape == second.shape


def test_views_and_storages_that_are_emptied_take_no_bytes() -> None:
    watcher = LiveBytes([])
    with watcher:
        emptied = torch.ones(1000)
        emptied.untyped_storage().resize_(0)
        views = torch.ones(500).view(5, 100)[1:]
    assert watcher.peak_bytes == FLOAT_BYTES * 1000
    assert views.shape == (4, 100)
