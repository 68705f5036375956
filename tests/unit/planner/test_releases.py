"""A framework is judged as it is in the release that a job names."""

from itertools import pairwise

import pytest

from planner.errors import UnknownName
from planner.frameworks import FRAMEWORKS, framework_by_name
from planner.job import Precision
from planner.limits import LayerSplit
from planner.strategy import ZeroStage


@pytest.mark.parametrize(
    ("version", "release"),
    [("0.16", "0.16"), ("0.16.1", "0.16"), ("v0.16.1", "0.16"), ("core_v0.16.0", "0.16"), ("0.9.x", "0.9")],
)
def test_a_version_is_one_of_a_release(version: str, release: str) -> None:
    assert framework_by_name("megatron-core", version=version).version == release


def test_no_version_is_the_newest_that_is_known() -> None:
    for name, framework in FRAMEWORKS.items():
        assert framework_by_name(name) is framework
        assert framework.version == (framework.versions[-1] if framework.versions else "")


@pytest.mark.parametrize(
    ("name", "version", "nearest"),
    [
        ("megatron-core", "0.8", "0.9"),
        ("megatron-core", "0.20.1", "0.19"),
        ("megatron-core", "1", "0.19"),
        ("torchtitan", "main", "0.3"),
    ],
)
def test_an_unknown_version_is_answered_with_the_known_ones(name: str, version: str, nearest: str) -> None:
    with pytest.raises(UnknownName) as refused:
        framework_by_name(name, version=version)
    assert refused.value.pointer == "/job/framework_version"
    assert refused.value.nearest_legal[0] == nearest
    assert set(refused.value.nearest_legal) == set(FRAMEWORKS[name].versions)


def test_a_framework_without_releases_is_told_so() -> None:
    with pytest.raises(UnknownName) as refused:
        framework_by_name("any", version="1.0")
    assert refused.value.nearest_legal == ()


def test_megatron_core_by_release() -> None:
    known = {
        version: framework_by_name("megatron-core", version=version)
        for version in ("0.9", "0.11", "0.12", "0.15")
    }
    assert known["0.15"].limits.layer_split is LayerSplit.ANY
    assert not known["0.15"].limits.copies_heads
    assert known["0.12"].limits.layer_split is LayerSplit.ENDS
    assert "shared_experts" not in known["0.12"].limits.recompute_modules
    assert known["0.12"].zero_stages == tuple(ZeroStage)
    assert set(known["0.12"].refused_precisions) == {Precision.NVFP4, Precision.FP8_BLOCK}
    assert known["0.11"].zero_stages == (ZeroStage.NONE, ZeroStage.OPTIMIZER)
    assert tuple(known["0.11"].limits.recompute_modules) == ("core_attn",)
    assert known["0.11"].limits.grouped_states
    assert not known["0.9"].limits.grouped_states


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_newer_release_refuses_no_precision_that_an_older_one_has(name: str) -> None:
    releases = [framework_by_name(name, version=version) for version in FRAMEWORKS[name].versions]
    for older, newer in pairwise(releases):
        assert set(newer.refused_precisions) <= set(older.refused_precisions)
