from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from planner.cost.group_shape import GroupShape
from planner.job import Precision
from planner.planning import PlanRequest
from planner.strategy import ShortPlan
from planner.wanted_shapes import (
    CollectiveWanted,
    KernelWanted,
    attention_wanted,
    collective_wanted,
    measured_in,
    pass_wanted,
    product_wanted,
    shapes_of_plans,
    wanted_shapes,
)
from planner.workload.operators import AttentionCore, Collective, MatrixProduct, Module, Phase
from tests.unit.planner.settings import request_of, setting


def small_request() -> PlanRequest:
    return request_of(
        setting(model="gpt-2-124m", num_layers=2, num_devices=2, global_batch_size=16, sequence_length=1024)
    )


PRODUCT = MatrixProduct(name="up", module=Module.MLP, rows=6, columns=5, inner=4)
CORE = AttentionCore(
    name="core",
    module=Module.CORE_ATTENTION,
    batch=2,
    query_length=8,
    key_length=8,
    heads=4,
    kv_heads=2,
    head_dim=16,
    value_dim=16,
    causal=True,
)


@pytest.mark.parametrize(
    ("product", "phase", "operator", "sizes"),
    [
        (PRODUCT, Phase.FORWARD, "matrix_product", {"m": 6, "n": 5, "k": 4}),
        (PRODUCT, Phase.INPUT_GRADIENT, "matrix_product", {"m": 6, "n": 4, "k": 5}),
        (
            replace(PRODUCT, count=3),
            Phase.WEIGHT_GRADIENT,
            "grouped_matrix_product",
            {"groups": 3, "m": 6, "n": 5, "k": 4},
        ),
        (
            replace(PRODUCT, count=3, has_weights=False),
            Phase.FORWARD,
            "batched_matrix_product",
            {"batch": 3, "m": 6, "n": 5, "k": 4},
        ),
    ],
)
def test_products_are_wanted_as_rows_say_them(
    product: MatrixProduct, phase: Phase, operator: str, sizes: Mapping[str, int]
) -> None:
    wanted = product_wanted(product, phase, Precision.BF16)

    assert wanted.to_document() == {
        "operator": operator,
        "dtype": "bf16",
        "phase": phase.value,
        "shape": dict(sorted(sizes.items())),
    }


def test_attention_is_wanted_where_rows_can_say_it() -> None:
    (wanted,) = attention_wanted(CORE, Phase.BACKWARD, Precision.FP8)

    assert wanted.dtype == "bf16"
    assert dict(wanted.sizes)["sequence"] == 8
    assert attention_wanted(replace(CORE, window=4), Phase.FORWARD, Precision.BF16) == ()
    assert attention_wanted(replace(CORE, key_length=16), Phase.FORWARD, Precision.BF16) == ()


def test_passes_are_wanted_at_three_sizes_for_a_curve() -> None:
    moved = 2.0 * 4 * 1024 * 768
    wanted = pass_wanted("rms_norm", moved, Phase.FORWARD, Precision.FP32)

    elements = [dict(one.sizes)["rows"] * dict(one.sizes)["cols"] for one in wanted]
    assert elements == [1024 * 768, 512 * 768, 2048 * 768]
    assert pass_wanted("telepathy", moved, Phase.FORWARD, Precision.FP32) == ()
    assert dict(pass_wanted("adam", 28.0 * 64, Phase.OPTIMIZER, Precision.FP32)[0].sizes) == {"params": 64}


def test_payloads_have_whole_elements_for_each_rank() -> None:
    shape = GroupShape(size=3, stride=1, ranks_per_node=3, ranks_per_level=(3,), talking=3)

    assert collective_wanted(Collective.ALL_GATHER, 1000.0, shape) == CollectiveWanted(
        operation="all_gather", world_size=3, ranks_per_node=3, payload_bytes=996
    )


def test_what_moves_the_prediction_most_comes_first() -> None:
    wanted = wanted_shapes(small_request())

    shares = list(wanted.influence.values())
    assert shares == sorted(shares, reverse=True)
    assert 0 < shares[0] < 0.5
    assert wanted.step_time_seconds is not None
    kinds = {one.operator for one in wanted.influence if isinstance(one, KernelWanted)}
    assert {"matrix_product", "attention", "adam"} <= kinds
    assert any(isinstance(one, CollectiveWanted) for one in wanted.influence)


def test_plans_ask_for_their_own_shapes_alone() -> None:
    request = small_request()
    replicas = ShortPlan(data_parallel=2, micro_batch_size=1)
    split = ShortPlan(tensor_parallel=2, micro_batch_size=2)
    illegal = ShortPlan(tensor_parallel=5, micro_batch_size=1)

    wanted = [set(shapes_of_plans(request, plans).influence) for plans in ([replicas], [split])]
    both = shapes_of_plans(request, [replicas, split, illegal])

    assert set(both.influence) == wanted[0] | wanted[1]
    assert wanted[0] - wanted[1]
    assert wanted[1] - wanted[0]
    influence = list(both.influence.values())
    assert influence == sorted(influence, reverse=True)
    assert both.step_time_seconds == min(
        seconds
        for plan in (replicas, split)
        if (seconds := shapes_of_plans(request, [plan]).step_time_seconds) is not None
    )
    assert shapes_of_plans(request, [illegal]).step_time_seconds is None


def test_what_was_measured_leaves_nothing_to_doubt() -> None:
    wanted = wanted_shapes(small_request())
    half = frozenset(list(wanted.influence)[::2])

    assert wanted.uncertainty(without=frozenset(wanted.influence)) == 0
    assert 0 < wanted.uncertainty(without=half) < wanted.uncertainty()
    document = wanted.to_document(without=half)
    assert len(document["kernels"]) + len(document["collectives"]) == len(wanted.influence) - len(half)


def test_a_profile_tells_what_was_tried() -> None:
    kernel = {"operator": "add", "dtype": "fp32", "phase": "forward", "shape": {"elems": 8}}
    collective: dict[str, Any] = {
        "operation": "broadcast",
        "world_size": 2,
        "ranks_per_node": 2,
        "payload_bytes": 8,
    }
    profile: dict[str, Any] = {
        "kernels": [{**kernel, "seconds": 1.0}],
        "collectives": [{**collective, "seconds": 1.0}],
        "facts": {
            "skipped": [
                {**kernel, "shape": {"elems": 2**60}, "reason": "out_of_memory"},
                {**kernel, "shape": {"elems": 16}, "reason": "time_limit"},
                {"operation": "h2d", "payload_bytes": 8, "reason": "unsupported"},
            ]
        },
    }

    assert measured_in(profile) == {
        KernelWanted.of("add", "fp32", "forward", {"elems": 8}),
        KernelWanted.of("add", "fp32", "forward", {"elems": 2**60}),
        CollectiveWanted(**collective),
    }
