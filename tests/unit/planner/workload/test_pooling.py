from dataclasses import replace

import pytest

from planner.workload.layers import Cut
from planner.workload.operators import AttentionCore, MatrixProduct
from planner.workload.pooling import AttentionPoolLayer
from planner.workload.streams import ImageStream

H, F = 128, 512
IMAGES = ImageStream(image_size=64, patch_size=16)
POOL = AttentionPoolLayer(hidden=H, ffn=F, heads=4, stream=IMAGES)
CUT = Cut(micro_batch_size=3, sequence_length=64, tensor_parallel=2)


def test_it_has_a_query_attention_a_norm_and_an_mlp() -> None:
    attention, mlp = 4 * (H * H + H), 2 * H * F + F + H
    assert POOL.parameters == POOL.local_parameters(CUT) == H + attention + 2 * H + mlp


def test_one_query_attends_to_all_tokens_of_an_image() -> None:
    core = next(op for op in POOL.operators(CUT) if isinstance(op, AttentionCore))
    assert (core.batch, core.query_length, core.key_length) == (3, 1, 16)


def test_work_is_that_of_the_operators() -> None:
    done = sum(
        op.forward_flops for op in POOL.operators(CUT) if isinstance(op, MatrixProduct | AttentionCore)
    )
    query = 2 * 3 * H * H  # the query's own map is no operator: it is one row
    assert done + query == 3 * POOL.forward_flops_per_sample(64)


def test_without_images_nothing_runs() -> None:
    assert replace(POOL, stream=replace(IMAGES, images=0)).operators(CUT) == ()


def test_heads_divide_the_width() -> None:
    with pytest.raises(ValueError, match="hidden"):
        replace(POOL, heads=3)
