from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint

from profiler.examples import models
from profiler.tracing.errors import UntraceableModule
from tests.unit.profiler.tracing.real_runs import (
    BATCH,
    CUT,
    attention_of,
    passes_of,
    planned,
    products_of,
    really_counted,
    roles,
    traced,
)

IMAGES = torch.zeros(BATCH, 3, 64, 64)
TOKENS = torch.zeros(BATCH, 48, dtype=torch.int64)
TAGGER_STEP_FLOPS = 2 * 2 * (2 * BATCH * 96 * 4 * 96)
"""The first step of each layer and direction has no gradient of its state, one step standing for all has."""

CONVOLUTIONAL = [
    pytest.param(models.residual_network, id="residual network"),
    pytest.param(models.segmenter, id="U-Net"),
    pytest.param(models.mixer, id="MLP-Mixer"),
]


@pytest.mark.parametrize("factory", CONVOLUTIONAL)
def test_a_model_of_images_counts_exactly_what_torch_counts(factory: Callable[[], nn.Module]) -> None:
    assert planned(traced(factory, "3x64x64")) == really_counted(factory(), [IMAGES])


def test_a_tagger_counts_what_torch_counts_but_for_what_fused_steps_need_not_save() -> None:
    workload, counted = planned(traced(models.tagger, "48:int64")), really_counted(models.tagger(), [TOKENS])
    assert workload.forward_flops == counted.forward_flops
    assert workload.backward_flops == counted.backward_flops + TAGGER_STEP_FLOPS
    # Step by step torch also saves each state apart from the outputs that hold it, and tanh of the cell.
    assert 0.85 * counted.saved_bytes < workload.saved_bytes < counted.saved_bytes


@pytest.mark.parametrize(
    ("factory", "shape"),
    [*((model.values[0], "3x64x64") for model in CONVOLUTIONAL), (models.tagger, "48:int64")],
)
def test_every_parameter_and_buffer_is_in_one_layer(factory: Callable[[], nn.Module], shape: str) -> None:
    workload, module = traced(factory, shape), factory()
    assert workload.parameters == sum(weight.numel() for weight in module.parameters())
    assert workload.buffers == sum(buffer.numel() for buffer in module.buffers())


def test_equal_blocks_are_one_entry_with_their_number() -> None:
    assert roles(traced(models.mixer, "3x64x64")) == [("Conv2d", 1), ("MixerBlock", 6), ("Linear", 1)]


def test_blocks_of_other_sizes_and_the_last_one_of_a_chain_stay_apart() -> None:
    workload = traced(models.residual_network, "3x64x64")
    assert [role for role, _ in roles(workload)] == ["Conv2d", *6 * ["ResidualBlock"], "Linear"]
    assert sum(count for role, count in roles(workload) if role == "ResidualBlock") == 9


def test_what_a_u_net_keeps_for_the_way_up_is_handed_on_all_the_way() -> None:
    outputs = [run.layer.output_bytes(CUT) / (4 * BATCH) for run in traced(models.segmenter, "3x64x64").runs]
    first, second, bottom = 16 * 64**2, 32 * 32**2, 64 * 16**2
    assert outputs[:3] == [first + first / 4, first + second + second / 4, first + second + bottom]


def test_a_recurrence_multiplies_all_inputs_at_once_and_its_state_step_by_step() -> None:
    workload = traced(lambda: nn.Sequential(nn.Linear(3, 8), nn.GRU(8, 16, batch_first=True)), "20x3")
    sizes = [(op.rows, op.columns, op.inner, op.repeats) for op in products_of(workload)]
    assert sizes == [(BATCH * 20, 8, 3, 1), (BATCH * 20, 48, 8, 1), (BATCH, 48, 16, 20)]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True, "bias": False}, {"num_layers": 2, "dropout": 0.1}]
)
def test_every_recurrence_has_the_flops_that_torch_counts(
    kind: Callable[..., nn.Module], options: dict[str, float]
) -> None:
    def made() -> nn.Module:
        return kind(8, 16, **options)

    counted = really_counted(made(), [torch.zeros(20, BATCH, 8)])
    assert planned(traced(made, "20xBx8")).forward_flops == counted.forward_flops


def test_a_recurrence_with_a_projection_is_taken_apart_as_torch_does() -> None:
    def made() -> nn.Module:
        return nn.LSTM(8, 16, proj_size=4)

    assert planned(traced(made, "20xBx8")) == really_counted(made(), [torch.zeros(20, BATCH, 8)])


def test_grouped_convolutions_are_grouped_products_and_depth_wise_ones_passes() -> None:
    def made() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 32, 3, groups=1), nn.Conv2d(32, 64, 3, groups=8), nn.Conv2d(64, 64, 5, groups=64)
        )

    workload, counted = traced(made, "3x16x16"), really_counted(made(), [torch.zeros(BATCH, 3, 16, 16)])
    # Of backward torch counts as many weight gradients of a grouped convolution as it has groups.
    assert planned(workload).forward_flops == counted.forward_flops
    assert planned(workload).saved_bytes == counted.saved_bytes
    (_, grouped), (depthwise,) = products_of(workload), passes_of(workload)
    assert (grouped.count, grouped.columns, grouped.inner) == (8, 8, 36)
    assert depthwise.forward_flops == 2 * BATCH * 64 * 8**2 * 25
    weights, before, after = 64 * 25 + 64, BATCH * 64 * 12**2, BATCH * 64 * 8**2
    assert (depthwise.kind, depthwise.forward_bytes) == ("depthwise", 4 * (before + after + weights))


def test_a_norm_over_the_batch_reads_its_input_twice() -> None:
    workload = traced(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)), "3x16x16")
    (norm,) = [op for op in passes_of(workload) if op.kind == "batch_norm"]
    image, channel_numbers = BATCH * 8 * 16**2, 8 * 10
    assert 3 * image < norm.forward_bytes / 4 < 3 * image + channel_numbers
    assert 5 * image < norm.backward_bytes / 4 < 5 * image + channel_numbers


@pytest.mark.parametrize(
    ("groups", "inputs_grouped", "flops"),
    [(1, 16, 2 * 8**2 * 16 * 8 * 4), (4, 16, 2 * 8**2 * 16 * 2 * 4), (16, 16, 2 * 8**2 * 16 * 4)],
)
def test_transposed_convolutions_multiply_every_place_of_their_input(
    groups: int, inputs_grouped: int, flops: int
) -> None:
    outputs = max(8, groups)

    def made() -> nn.Module:
        return nn.ConvTranspose2d(inputs_grouped, outputs, 2, stride=2, groups=groups)

    assert traced(made, "16x8x8").forward_flops_per_sample(1) == flops


class Functional(nn.Module):
    """Weights of its own, and one expanded over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6, 5))
        self.shift = nn.Parameter(torch.zeros(5))
        self.unused = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = torch.einsum("bsd,de->bse", x, self.weight) + self.shift
        turned = torch.mm(self.weight.t(), x.flatten(0, 1).t())
        batched = torch.bmm(x, self.weight.expand(len(x), 6, 5))
        added = torch.baddbmm(batched, x, self.weight.expand(len(x), 6, 5))
        return {"y": y.relu(), "turned": turned.t().reshape(y.shape), "added": added}


def test_a_module_without_parts_is_one_layer() -> None:
    workload = traced(Functional, "4x6")
    assert roles(workload) == [("Functional", 1)]
    assert workload.parameters == 38
    counted = really_counted(Functional(), [torch.zeros(BATCH, 4, 6)])
    assert planned(workload).forward_flops == counted.forward_flops
    assert {(op.rows, op.columns) for op in products_of(workload)} == {(4 * BATCH, 5)}


class Graph(nn.Module):
    """Messages over a dense graph: a product of two inputs' making, one of which nothing trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            nodes = torch.relu(torch.bmm(edges, layer(nodes)))
        return nodes.mean(dim=1)


def test_a_graph_network_counts_exactly_what_torch_counts() -> None:
    inputs = [torch.zeros(BATCH, 10, 16), torch.zeros(BATCH, 10, 10)]
    assert planned(traced(Graph, "10x16", "10x10")) == really_counted(Graph(), inputs)


class Attention(nn.Module):
    """Attention of torch's own, with a mask where it is asked for."""

    def __init__(self, *, masked: bool = False, causal: bool = False, kv_heads: int = 4) -> None:
        super().__init__()
        self.query, self.output = nn.Linear(32, 32), nn.Linear(32, 32)
        self.key_value = nn.Linear(32, 2 * 8 * kv_heads)
        self.masked, self.causal, self.kv_heads = masked, causal, kv_heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query = self.query(x).unflatten(-1, (4, 8)).transpose(1, 2)
        key, value = self.key_value(x).unflatten(-1, (2, self.kv_heads, 8)).permute(2, 0, 3, 1, 4)
        mask = x.new_zeros(x.shape[1], x.shape[1]) if self.masked else None
        out = nn.functional.scaled_dot_product_attention(
            query, key, value, mask, is_causal=self.causal, enable_gqa=self.kv_heads < 4
        )
        mapped: torch.Tensor = self.output(out.transpose(1, 2).flatten(2))
        return mapped


@pytest.mark.parametrize(
    ("masked", "kv_heads", "traced_heads"), [(False, 4, 4), (False, 2, 2), (True, 4, 4), (True, 2, 4)]
)
def test_attention_is_one_operator(*, masked: bool, kv_heads: int, traced_heads: int) -> None:
    workload = traced(lambda: Attention(masked=masked, kv_heads=kv_heads), "20x32")
    core = attention_of(workload)
    sizes = (core.batch, core.query_length, core.key_length, core.heads, core.kv_heads, core.head_dim)
    assert sizes == (BATCH, 20, 20, 4, traced_heads, 8)
    assert core.forward_flops == 2 * 2 * BATCH * 4 * 20 * 20 * 8


def test_causal_attention_counts_half_the_pairs() -> None:
    whole, half = traced(Attention, "20x32"), traced(lambda: Attention(causal=True), "20x32")
    pairs = 2 * 2 * 4 * 20 * 20 * 8
    assert whole.forward_flops_per_sample(1) - half.forward_flops_per_sample(1) == pairs / 2


class OneHead(nn.Module):
    """Attention over a batch of sequences without heads."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(self.map(x), x, x)


def test_attention_without_heads_has_one() -> None:
    core = attention_of(traced(OneHead, "20x8"))
    assert (core.batch, core.heads) == (BATCH, 1)


class Tied(nn.Module):
    """The table of its embedding is that of its scores; a map between them is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 16)
        self.frozen = nn.Linear(16, 16).requires_grad_(requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(self.frozen(self.table(x)), self.table.weight)


def test_shared_weights_count_once_and_frozen_ones_as_buffers() -> None:
    workload = traced(Tied, "8:int64")
    layers = [run.layer for run in workload.runs]
    assert (workload.parameters, workload.buffers) == (1600, 272)
    assert [layer.tied_local_parameters(CUT) for layer in layers] == [0, 0, 1600]


def test_a_wrapped_module_is_taken_apart_as_the_module_itself() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = models.mixer()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.inner(x)
            return 2 * y

    assert [role for role, _ in roles(traced(Wrapper, "3x64x64"))] == ["Conv2d", "MixerBlock", "Linear"]


def test_modules_without_weights_go_with_those_before_them() -> None:
    def made() -> nn.Module:
        return nn.Sequential(
            nn.Linear(8, 8), nn.ReLU(), nn.Dropout(), nn.LayerNorm(8), nn.Linear(8, 2), nn.Softmax(-1)
        )

    assert roles(traced(made, "8")) == [("Linear", 1), ("Linear", 1)]


def test_widths_of_their_own_are_told_from_those_of_activations() -> None:
    wide, narrow = (
        traced(models.residual_network, "3x64x64", dtype=dtype) for dtype in (torch.float32, torch.bfloat16)
    )
    assert wide.forward_flops_per_sample(1) == narrow.forward_flops_per_sample(1)
    # Norms keep their statistics in FP32 whatever the width of activations.
    assert planned(narrow).saved_bytes == planned(wide).saved_bytes


class Contrast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.map(x)
        return cross_entropy(z @ z.t(), torch.arange(len(x), device=x.device))


class Branching(Contrast):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.map(x)
        return y if y.sum().item() > 0 else -y


class Choosing(Contrast):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.map(x)
        return y[y.sum(dim=1) > 0]


class Checkpointed(Contrast):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = checkpoint(self.map, x.clone().requires_grad_(), use_reentrant=False)
        return y


class Silent(nn.Module):
    def forward(self, x: torch.Tensor) -> str:
        return str(x.relu().shape)


class Looping(Contrast):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(len(x)):
            x = self.map(x)
        return x


class Growing(Contrast):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.map(x)
        return y.repeat(len(x), 1)


class Idle(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (Contrast, "samples are mixed"),
        (Growing, "repeat of layer .* does not grow evenly"),
        (Looping, "for another batch"),
        (Branching, "asks for values"),
        (Choosing, "asks for values"),
        (Checkpointed, "without activation checkpointing"),
        (Silent, "returned no tensor, but a str"),
        (Idle, "runs no operator"),
        (lambda: nn.Linear(17, 1), "cannot be run, on inputs of 2x16"),
    ],
)
def test_a_module_that_cannot_be_described_by_the_sample_is_refused(
    factory: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(UntraceableModule, match=message):
        traced(factory, "16")


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrence = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = torch.full((len(x),), 4)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        y: torch.Tensor = self.recurrence(packed)[0].data
        return y


def test_sequences_of_lengths_of_their_own_are_taken_apart_as_torch_does() -> None:
    counted = really_counted(Packed(), [torch.zeros(BATCH, 4, 4)])
    assert planned(traced(Packed, "4x4")).forward_flops == counted.forward_flops
