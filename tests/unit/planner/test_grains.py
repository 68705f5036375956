"""Each decision has a grain: nothing is chosen more finely than the framework lets one."""

import pytest

from planner.framework import Grain
from planner.frameworks import FRAMEWORKS, framework_by_name
from planner.grains import DEGREES, decision_grains


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_degrees_and_batches_are_those_of_the_whole_job(name: str) -> None:
    grains = decision_grains(FRAMEWORKS[name])
    assert {grains[word] for word in (*DEGREES, "micro_batch_size", "schedule")} == {Grain.JOB}


@pytest.mark.parametrize(
    ("name", "sharding", "layers", "recompute"),
    [
        ("pytorch", Grain.LAYER, Grain.CHUNK, Grain.LAYER),
        ("torchtitan", Grain.JOB, Grain.CHUNK, Grain.JOB),
        ("megatron-core", Grain.JOB, Grain.CHUNK, Grain.JOB),
        ("nanotron", Grain.JOB, Grain.JOB, Grain.JOB),
        ("maxtext", Grain.JOB, Grain.JOB, Grain.JOB),
        ("composer", Grain.JOB, Grain.JOB, Grain.JOB),
        ("any", Grain.LAYER, Grain.CHUNK, Grain.LAYER),
    ],
)
def test_a_framework_decides_by_job_chunk_or_layer(
    name: str, sharding: Grain, layers: Grain, recompute: Grain
) -> None:
    grains = decision_grains(framework_by_name(name))
    assert (grains["sharding"], grains["layers_per_stage"], grains["recompute"]) == (
        sharding,
        layers,
        recompute,
    )
