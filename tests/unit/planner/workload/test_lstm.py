from dataclasses import replace

import pytest
import torch

from planner.workload.layers import Cut
from planner.workload.lstm import LstmLayer
from planner.workload.operators import MatrixProduct, MemoryPass
from planner.workload.recomputation import saved_bytes
from planner.workload.streams import ImageStream

B, S, C, H = 4, 32, 48, 64  # batch, sequence, channels in, hidden
LAYER = LstmLayer(inputs=C, hidden=H)
BOTH_WAYS = replace(LAYER, bidirectional=True)
CUT = Cut(micro_batch_size=B, sequence_length=S)


@pytest.mark.parametrize("layer", [LAYER, BOTH_WAYS, replace(LAYER, bias=False)], ids=str)
def test_it_has_the_parameters_of_torchs_layer(layer: LstmLayer) -> None:
    theirs = torch.nn.LSTM(C, H, bidirectional=layer.bidirectional, bias=layer.bias, device="meta")
    assert layer.parameters == layer.local_parameters(CUT) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize(("layer", "directions"), [(LAYER, 1), (BOTH_WAYS, 2)])
def test_inputs_are_one_product_and_steps_wait_for_one_another(layer: LstmLayer, directions: int) -> None:
    inputs, step = (op for op in layer.operators(CUT) if isinstance(op, MatrixProduct))
    assert (inputs.rows, inputs.columns, inputs.inner) == (B * S, directions * 4 * H, C)
    assert (step.rows, step.columns, step.inner, step.repeats) == (B, 4 * H, H, directions * S)
    assert inputs.forward_flops + step.forward_flops == B * layer.forward_flops_per_sample(S)


def test_gates_are_a_pass_for_every_step() -> None:
    (gates,) = (op for op in LAYER.operators(CUT) if isinstance(op, MemoryPass))
    assert gates.repeats == S
    assert gates.forward_bytes == 2 * B * H * (8 + 3 + 4)


def test_input_gates_and_cells_are_saved() -> None:
    assert saved_bytes(LAYER.operators(CUT)) == 2 * B * S * (C + 5 * H)
    dropped = replace(LAYER, dropout=0.1)
    assert saved_bytes(dropped.operators(CUT)) - saved_bytes(LAYER.operators(CUT)) == B * S * H


def test_it_hands_on_both_directions() -> None:
    assert LAYER.output_bytes(CUT) == 2 * B * S * H
    assert BOTH_WAYS.output_bytes(CUT) == 2 * LAYER.output_bytes(CUT)


def test_without_images_there_is_nothing_to_do() -> None:
    assert replace(LAYER, stream=ImageStream(image_size=8, patch_size=2, images=0)).operators(CUT) == ()


def test_neither_channels_nor_steps_are_split() -> None:
    assert {split.axis for split in LAYER.splits if not split.allows(2)} == {
        "tensor_parallel",
        "context_parallel",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [("inputs", 0), ("hidden", -1), ("bidirectional", 1), ("bias", None), ("dropout", 1.5)],
)
def test_nonsense_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        replace(LAYER, **{name: value})  # type: ignore[arg-type]  # what is wrong is the point
