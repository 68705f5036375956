"""Adapters: as many parameters as PEFT and Megatron give them, and what they run and save."""

from dataclasses import replace

import pytest

from planner.job import AttentionKind, BaseFormat
from planner.workload.adapters import AdaptedLayer, Adapters
from planner.workload.frozen import FrozenLayer
from planner.workload.layers import Cut
from planner.workload.operators import CollectivePass, MatrixProduct, Phase
from planner.workload.presets import preset_workload
from planner.workload.recomputation import WHOLE_LAYER, saved_bytes
from planner.workload.weights import weight_products

LLAMA = preset_workload("llama-2-7b").layer("decoder")
LAYERS, HIDDEN, FFN = 32, 4096, 11008
CUT = Cut(micro_batch_size=1, sequence_length=1024)
SPLIT = replace(CUT, tensor_parallel=2)


def adapted(
    model: str = "llama-2-7b", *, rank: int = 16, targets: tuple[str, ...] | None = None
) -> AdaptedLayer:
    return AdaptedLayer(
        layer=preset_workload(model).layer("decoder"), adapters=Adapters(rank=rank, targets=targets)
    )


@pytest.mark.parametrize(
    ("model", "rank", "targets", "trained"),
    [
        # What PEFT prints for these models.
        ("llama-2-7b", 8, ("q_proj", "v_proj"), 4_194_304),
        ("llama-2-7b", 16, ("all-linear",), 39_976_960),
        ("llama-2-7b", 64, None, 159_907_840),
        ("llama-2-13b", 8, ("q_proj", "v_proj"), 6_553_600),
        ("llama-3-8b", 8, ("q_proj", "v_proj"), 3_407_872),
        ("llama-3-8b", 16, None, 41_943_040),
        ("mistral-7b", 8, ("q_proj", "v_proj"), 3_407_872),
        # One adapter for Q, K and V together: 32 layers of 16 (4096 + 3 x 4096).
        ("llama-2-7b", 16, ("linear_qkv",), 8_388_608),
    ],
)
def test_adapters_have_the_published_number_of_parameters(
    model: str, rank: int, targets: tuple[str, ...] | None, trained: int
) -> None:
    layers = preset_workload(model).count("decoder")
    layer = adapted(model, rank=rank, targets=targets)
    assert layers * layer.adapter_holdings(CUT).parameters == trained
    assert layer.parameters - layer.layer.parameters == trained // layers


@pytest.mark.parametrize("attention", list(AttentionKind))
def test_each_of_q_k_and_v_has_its_own_width(attention: AttentionKind) -> None:
    """Eight key heads of 128 beside thirty-two query heads."""
    cut = replace(CUT, attention=attention)
    for target, columns in (("q_proj", 4096), ("k_proj", 1024), ("v_proj", 1024)):
        layer = adapted("llama-3-8b", rank=1, targets=(target,))
        assert layer.adapter_holdings(cut).parameters == 4096 + columns


def test_an_mlp_without_a_gate_has_no_adapter_for_one() -> None:
    assert adapted("gpt-2-124m", targets=("gate_proj",)).adapter_holdings(CUT).parameters == 0
    assert adapted("gpt-2-124m", rank=1, targets=("up_proj",)).adapter_holdings(CUT).parameters == 768 * 5


def test_each_expert_has_adapters_of_its_own() -> None:
    held = adapted("mixtral-8x7b", rank=4, targets=("down_proj",)).adapter_holdings(CUT)
    assert held.experts.parameters == 8 * 4 * (14336 + 4096)
    assert held.dense.parameters == 0


def test_cross_attention_and_state_spaces_have_targets_too() -> None:
    t5 = preset_workload("t5-small").layer("decoder")
    cross = AdaptedLayer(layer=t5, adapters=Adapters(rank=1, targets=("k_proj",)))
    assert cross.adapter_holdings(CUT).parameters == 2 * (512 + 512)
    jamba = preset_workload("jamba-v0.1").layer("decoder")
    assert AdaptedLayer(layer=jamba, adapters=Adapters(rank=1)).adapter_holdings(CUT).parameters > 0


def test_the_layer_itself_stays_frozen() -> None:
    layer = adapted()
    own = {op.name for op in weight_products(LLAMA.operators(CUT))}
    trained = {op.name for op in weight_products(layer.operators(CUT)) if op.trains}
    assert trained.isdisjoint(own)
    assert layer.holdings(CUT).dense.frozen == LLAMA.parameters


def test_an_adapter_saves_the_input_and_what_it_made_of_it() -> None:
    """Beside a frozen layer: the inputs of both targeted products, and rank numbers per token and adapter."""
    tokens, rank = 1024, 16
    more = saved_bytes(adapted(rank=rank, targets=("q_proj", "down_proj")).operators(CUT)) - saved_bytes(
        FrozenLayer(layer=LLAMA).operators(CUT)
    )
    assert more == 2 * tokens * (HIDDEN + FFN + 2 * rank)


def test_a_layer_whose_branches_share_their_input_saves_it_once_for_any_adapter() -> None:
    """GPT-J's MLP reads what attention saved."""
    shared = preset_workload("gpt-j-6b").layer("decoder")
    plain = saved_bytes(FrozenLayer(layer=shared).operators(CUT))
    layer = AdaptedLayer(layer=shared, adapters=Adapters(rank=1, targets=("up_proj",)))
    assert saved_bytes(layer.operators(CUT)) - plain == 2 * 1024 * (4096 + 1)


def test_full_recomputation_keeps_the_input_alone() -> None:
    assert saved_bytes(adapted().operators(CUT), recompute=WHOLE_LAYER) == 2 * 1024 * HIDDEN


def test_adapters_work_on_every_token_there_and_back() -> None:
    tokens, rank = 1024, 8
    layer = adapted(rank=rank, targets=("o_proj",))
    both = 2 * tokens * rank * (HIDDEN + HIDDEN)
    assert layer.forward_flops_per_sample(tokens) - LLAMA.forward_flops_per_sample(tokens) == both
    frozen = FrozenLayer(layer=LLAMA).step_flops_per_sample(tokens)
    assert layer.step_flops_per_sample(tokens) - frozen == 3 * both


def test_tensor_parallel_ranks_split_one_of_both_matrices() -> None:
    """Q's is split by columns, so A is whole and B split; the output's by inputs: the other way round."""
    rank = 16
    for target, whole in (("q_proj", HIDDEN), ("o_proj", HIDDEN)):
        held = adapted(rank=rank, targets=(target,)).adapter_holdings(SPLIT)
        assert held.parameters == rank * (whole + HIDDEN // 2)


def test_the_gradient_of_a_whole_a_is_summed_over_tensor_parallel_ranks() -> None:
    def reductions(target: str) -> list[float]:
        return [
            op.payload_bytes
            for op in adapted(rank=16, targets=(target,)).operators(SPLIT)
            if isinstance(op, CollectivePass) and "adapter" in op.name and op.phase is Phase.BACKWARD
        ]

    assert reductions("q_proj") == [2 * 1024 * 16]
    assert reductions("o_proj") == []


def test_an_adapted_input_is_gathered_again_for_its_gradient() -> None:
    sequence_parallel = replace(SPLIT, sequence_parallel=True)
    for target, count in (("q_proj", 1), ("o_proj", 0)):
        operators = adapted(targets=(target,)).operators(sequence_parallel)
        assert sum("saved_input_gather" in op.name for op in operators) == count


def test_adapters_over_quantized_weights_rest_as_they_train() -> None:
    layer = replace(adapted(rank=16), base_format=BaseFormat.NF4)
    held = layer.holdings(CUT).dense
    assert held.trained.parameters == adapted(rank=16).adapter_holdings(CUT).parameters
    assert held.frozen == 2 * HIDDEN
    adapters = [op for op in layer.operators(CUT) if isinstance(op, MatrixProduct) and "adapter" in op.name]
    assert adapters
    assert not any(op.dequantized for op in adapters)
