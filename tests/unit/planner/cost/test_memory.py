"""State bytes equal the published arithmetic of ZeRO and of activation recomputation."""

import pytest

from planner.cost.memory import (
    COMMUNICATOR_BYTES,
    StateBytes,
    buffer_bytes,
    framework_bytes,
    frozen_bytes,
    state_bytes,
)
from planner.expansion import zero_sharding
from planner.footprint import Footprint
from planner.framework import StateFormats, StateWidths
from planner.frameworks import FRAMEWORKS
from planner.job import Precision
from planner.strategy import ZeroStage

ZERO_PAPER = StateWidths(parameter=2, compute=2, gradient=2, held_gradient=2, optimizer=12)
"""Adam in mixed precision as the ZeRO paper counts it."""


@pytest.mark.parametrize(
    ("zero_stage", "gigabytes"),
    [
        (ZeroStage.NONE, 120),
        (ZeroStage.OPTIMIZER, 31.4),
        (ZeroStage.GRADIENTS, 16.6),
        (ZeroStage.PARAMETERS, 1.9),
    ],
)
def test_states_of_7_5_billion_parameters_over_64_ranks(zero_stage: ZeroStage, gigabytes: float) -> None:
    """Rajbhandari et al. (2020), figure 1."""
    sharding = zero_sharding(zero_stage, replicas=64, framework=FRAMEWORKS["megatron-core"])
    states = state_bytes(7_500_000_000, widths=ZERO_PAPER, sharding=sharding)
    assert states.total == pytest.approx(gigabytes * 1e9, rel=0.015)


def test_a_trillion_parameters_over_1024_ranks_take_16_gigabytes() -> None:
    sharding = zero_sharding(ZeroStage.PARAMETERS, replicas=1024, framework=FRAMEWORKS["megatron-core"])
    states = state_bytes(10**12, widths=ZERO_PAPER, sharding=sharding)
    assert states.total == pytest.approx(15.6e9, rel=0.01)


@pytest.mark.parametrize(
    ("framework", "precision", "bytes_per_parameter"),
    [
        ("megatron-core", Precision.BF16, 2 + 4 + 12),
        ("megatron-core", Precision.FP16, 2 + 2 + 12),
        ("megatron-bridge", Precision.FP8, 2 + 2 + 12),
        ("megatron-bridge", Precision.FP32, 4 + 4 + 8),
        ("megatron-core", Precision.FP32, 4 + 4 + 8),
        ("pytorch", Precision.BF16, 4 + 4 + 8),
        ("nanotron", Precision.BF16, 2 + (4 + 2) + 12),
    ],
)
def test_bytes_per_parameter_of_adam(framework: str, precision: Precision, bytes_per_parameter: int) -> None:
    widths = FRAMEWORKS[framework].widths(precision, moment_values=2)
    assert widths.parameter + widths.held_gradient + widths.optimizer == bytes_per_parameter


@pytest.mark.parametrize(
    ("framework", "formats", "bytes_per_parameter"),
    [
        ("megatron-core", StateFormats(gradient=Precision.BF16), 2 + 2 + 12),
        ("megatron-core", StateFormats(moments=Precision.BF16), 2 + 4 + 4 + 4),
        ("megatron-core", StateFormats(moments=Precision.FP8), 2 + 4 + 4 + 2),
        ("megatron-core", StateFormats(master_weight=Precision.FP16), 2 + 4 + 0 + 8),
        ("deepspeed", StateFormats(master_weight=Precision.BF16, moments=Precision.BF16), 2 + 2 + 4),
        # PyTorch's gradients and moments have the parameter's format, whatever else is asked for.
        ("pytorch", StateFormats(master_weight=Precision.BF16), 2 + 2 + 4),
        ("pytorch", StateFormats(moments=Precision.BF16), 4 + 4 + 8),
    ],
)
def test_formats_that_a_job_asks_for(framework: str, formats: StateFormats, bytes_per_parameter: int) -> None:
    widths = FRAMEWORKS[framework].widths(Precision.BF16, moment_values=2, formats=formats)
    assert widths.parameter + widths.held_gradient + widths.optimizer == bytes_per_parameter


def test_moments_of_a_factored_optimizer_come_on_top_of_the_master_weight() -> None:
    widths = FRAMEWORKS["megatron-core"].widths(Precision.BF16, moment_values=0)
    assert widths.with_moments(0.01).optimizer == pytest.approx(4.01)


def test_fsdp_that_does_not_reshard_keeps_a_gathered_copy() -> None:
    framework = FRAMEWORKS["pytorch"]
    widths = framework.widths(Precision.BF16, moment_values=2)
    kept = zero_sharding(ZeroStage.GRADIENTS, replicas=8, framework=framework)
    dropped = zero_sharding(ZeroStage.PARAMETERS, replicas=8, framework=framework)
    more = state_bytes(8000, widths=widths, sharding=kept).total
    assert more - state_bytes(8000, widths=widths, sharding=dropped).total == 2 * 8000


def test_frozen_parameters_are_sharded_where_parameters_are() -> None:
    framework = FRAMEWORKS["pytorch"]
    for zero_stage, expected in [
        (ZeroStage.NONE, 800),
        (ZeroStage.GRADIENTS, 900),
        (ZeroStage.PARAMETERS, 100),
    ]:
        sharding = zero_sharding(zero_stage, replicas=8, framework=framework)
        assert frozen_bytes(800, sharding=sharding) == StateBytes(parameters=expected)


def test_sharded_parameters_need_room_for_gathered_layers() -> None:
    framework = FRAMEWORKS["megatron-core"]
    widths = framework.widths(Precision.BF16, moment_values=2)
    for zero_stage, expected in [(ZeroStage.OPTIMIZER, 0), (ZeroStage.PARAMETERS, 2 * (2 + 4) * 1000)]:
        sharding = zero_sharding(zero_stage, replicas=8, framework=framework)
        room = buffer_bytes(
            gathered_bytes=2 * 1000,
            trained_parameters=1000,
            gradient_bytes=widths.gradient,
            sharding=sharding,
        )
        assert room == expected


def test_whole_weights_that_are_cast_stay_in_both_widths_and_gathered_ones_do_not() -> None:
    framework = FRAMEWORKS["pytorch"]
    for precision, zero_stage, expected in [
        (Precision.BF16, ZeroStage.NONE, 4 + 2),
        (Precision.FP32, ZeroStage.NONE, 4),
        (Precision.BF16, ZeroStage.PARAMETERS, 4 / 8),
    ]:
        widths = framework.widths(precision, moment_values=2)
        sharding = zero_sharding(zero_stage, replicas=8, framework=framework)
        assert state_bytes(8000, widths=widths, sharding=sharding).parameters == expected * 8000


@pytest.mark.parametrize(("zero_stage", "whole_bytes", "shared_bytes"), [(1, 2 + 2, 16), (2, 2, 2 + 16)])
def test_deepspeed_keeps_fp32_gradients_of_its_shard(
    zero_stage: int, whole_bytes: int, shared_bytes: int
) -> None:
    """DeepSpeed's memory requirements: 4 P + 16 P / n, stage 2 counted with its gradients unreduced."""
    framework, replicas, parameters = FRAMEWORKS["deepspeed"], 8, 8_000
    states = state_bytes(
        parameters,
        widths=framework.widths(Precision.BF16, moment_values=2),
        sharding=zero_sharding(ZeroStage(zero_stage), replicas=replicas, framework=framework),
        footprint=framework.footprint,
        replicas=replicas,
    )
    assert states.total == whole_bytes * parameters + shared_bytes * parameters / replicas


@pytest.mark.parametrize(
    ("zero_stage", "replicas", "copy_bytes"),
    [(ZeroStage.NONE, 8, 2), (ZeroStage.NONE, 1, 0), (ZeroStage.OPTIMIZER, 8, 4 / 8)],
)
def test_gradients_averaged_whole_stay_in_buckets_too_and_those_of_shards_in_fp32(
    zero_stage: ZeroStage, replicas: int, copy_bytes: float
) -> None:
    framework, parameters = FRAMEWORKS["nanotron"], 8_000
    widths = framework.widths(Precision.BF16, moment_values=2)
    sharding = zero_sharding(zero_stage, replicas=replicas, framework=framework)
    plain = state_bytes(parameters, widths=widths, sharding=sharding)
    states = state_bytes(
        parameters, widths=widths, sharding=sharding, footprint=framework.footprint, replicas=replicas
    )
    assert states.total - plain.total == copy_bytes * parameters


def test_an_engine_makes_groups_of_its_own_only_where_there_are_groups() -> None:
    footprint = Footprint(context_bytes=1e9, further_groups=2)
    assert framework_bytes(num_groups=0, footprint=footprint) == 1e9
    assert framework_bytes(num_groups=3, footprint=footprint) == 1e9 + 5 * COMMUNICATOR_BYTES
