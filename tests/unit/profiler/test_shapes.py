import json
from pathlib import Path
from typing import Any

import pytest

from planner.workload.operators import Collective, Phase
from profiler.shapes import (
    CollectiveShape,
    KernelShape,
    Shapes,
    ShapesRefused,
    read_shapes,
    shapes_from_document,
)

PRODUCT = {
    "operator": "matrix_product",
    "dtype": "fp32",
    "phase": "forward",
    "shape": {"m": 2, "n": 3, "k": 4},
}
ALL_REDUCE = {"operation": "all_reduce", "world_size": 2, "payload_bytes": 1024}


def document(**fields: object) -> dict[str, Any]:
    return {"format": "meshplan-shapes/1", **fields}


def test_list_of_shapes_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps(document(kernels=[PRODUCT], collectives=[ALL_REDUCE])))

    assert read_shapes(path) == Shapes(
        kernels=(
            KernelShape(
                operator="matrix_product", dtype="fp32", phase=Phase.FORWARD, shape={"m": 2, "n": 3, "k": 4}
            ),
        ),
        collectives=(CollectiveShape(operation=Collective.ALL_REDUCE, world_size=2, payload_bytes=1024),),
    )


def test_mask_may_be_true_or_1() -> None:
    attention = {**PRODUCT, "operator": "attention", "shape": {"causal": True}}

    (kernel,) = shapes_from_document(document(kernels=[attention])).kernels

    assert kernel.shape == {"causal": 1}
    assert json.dumps(kernel.shape["causal"]) == "1"


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ([], "/"),
        ({}, "/format"),
        ({"format": "meshplan-profile/1"}, "/format"),
        (document(kernels={}), "/kernels"),
        (document(kernels=[7]), "/kernels/0"),
        (document(kernels=[PRODUCT, {**PRODUCT, "operator": None}]), "/kernels/1/operator"),
        (document(kernels=[{**PRODUCT, "phase": "sideways"}]), "/kernels/0/phase"),
        (document(kernels=[{**PRODUCT, "shape": None}]), "/kernels/0/shape"),
        (document(kernels=[{**PRODUCT, "shape": {"m": -1}}]), "/kernels/0/shape/m"),
        (document(kernels=[{**PRODUCT, "shape": {"m": 1.5}}]), "/kernels/0/shape/m"),
        (document(collectives=[{**ALL_REDUCE, "operation": "gossip"}]), "/collectives/0/operation"),
        (document(collectives=[{**ALL_REDUCE, "world_size": 1}]), "/collectives/0/world_size"),
        (document(collectives=[{**ALL_REDUCE, "payload_bytes": 0}]), "/collectives/0/payload_bytes"),
    ],
)
def test_nonsense_is_refused_with_its_pointer(wrong: object, pointer: str) -> None:
    with pytest.raises(ShapesRefused, match=f"^{pointer}: "):
        shapes_from_document(wrong)


def test_file_that_is_no_json_or_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    with pytest.raises(ShapesRefused, match="cannot read"):
        read_shapes(path)
    path.write_text("{")
    with pytest.raises(ShapesRefused, match="is no JSON"):
        read_shapes(path)
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ShapesRefused, match="is no JSON"):
        read_shapes(path)


def test_kernels_and_collectives_take_turns_in_their_own_order() -> None:
    kernels = [{**PRODUCT, "shape": {"m": m}} for m in (1, 2, 3, 4)]
    collectives = [{**ALL_REDUCE, "payload_bytes": size} for size in (4, 8)]

    merged = shapes_from_document(document(kernels=kernels, collectives=collectives)).interleaved()

    assert [str(item) for item in merged] == [
        "matrix_product forward fp32 m=1",
        "matrix_product forward fp32 m=2",
        "all_reduce of 4 B, 2 ranks",
        "matrix_product forward fp32 m=3",
        "matrix_product forward fp32 m=4",
        "all_reduce of 8 B, 2 ranks",
    ]
    assert Shapes().interleaved() == []
