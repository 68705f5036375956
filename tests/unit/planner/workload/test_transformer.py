from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.job import AttentionKind
from planner.workload.layers import Cut
from planner.workload.operators import (
    AttentionCore,
    Collective,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Phase,
)
from planner.workload.passes import Norm
from planner.workload.recomputation import WHOLE_LAYER, saved_bytes
from planner.workload.transformer import DecoderLayer

GPT = DecoderLayer(
    hidden=6144,
    ffn=4 * 6144,
    heads=64,
    kv_heads=64,
    head_dim=96,
    norm=Norm.LAYER,
    gated=False,
    rotary=False,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    attention_dropout=0.1,
    hidden_dropout=0.1,
)
LLAMA = DecoderLayer(hidden=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128)
S, B, H, A = 2048, 4, GPT.hidden, GPT.heads
UNFUSED = Cut(micro_batch_size=B, sequence_length=S, attention=AttentionKind.UNFUSED)
FLASH = Cut(micro_batch_size=B, sequence_length=S)


def named(operators: tuple[Operator, ...], name: str) -> Operator:
    return next(operator for operator in operators if operator.name == name)


def collectives(layer: DecoderLayer, cut: Cut) -> list[CollectivePass]:
    return [operator for operator in layer.operators(cut) if isinstance(operator, CollectivePass)]


def test_a_gpt_layer_saves_what_korthikanti_et_al_count() -> None:
    assert saved_bytes(GPT.operators(UNFUSED)) == S * B * (34 * H + 5 * A * S)


@pytest.mark.parametrize("t", [2, 4, 8])
def test_tensor_parallel_alone_leaves_the_norms_and_masks_whole(t: int) -> None:
    cut = replace(UNFUSED, tensor_parallel=t)
    assert saved_bytes(GPT.operators(cut)) == S * B * (10 * H + (24 * H + 5 * A * S) // t)


@pytest.mark.parametrize("t", [2, 4, 8])
def test_sequence_parallel_divides_all_that_is_saved(t: int) -> None:
    cut = replace(UNFUSED, tensor_parallel=t, sequence_parallel=True)
    assert saved_bytes(GPT.operators(cut)) == S * B * (34 * H + 5 * A * S) // t


@pytest.mark.parametrize("t", [1, 8])
def test_recomputing_the_core_leaves_34_bytes(t: int) -> None:
    cut = replace(UNFUSED, tensor_parallel=t, sequence_parallel=True)
    selective = saved_bytes(GPT.operators(cut), recompute={Module.CORE_ATTENTION})
    assert selective == 34 * S * B * H // t


@pytest.mark.parametrize(("sequence_parallel", "shards"), [(False, 1), (True, 8)])
def test_recomputing_the_layer_leaves_its_input(sequence_parallel: bool, shards: int) -> None:  # noqa: FBT001
    cut = replace(UNFUSED, tensor_parallel=8, sequence_parallel=sequence_parallel)
    assert saved_bytes(GPT.operators(cut), recompute=WHOLE_LAYER) == 2 * S * B * H // shards


def test_flash_attention_saves_one_number_per_head_and_token_beyond_the_34_bytes() -> None:
    assert saved_bytes(GPT.operators(FLASH)) == 34 * S * B * H + 4 * S * B * A


def test_a_layer_without_dropout_saves_no_masks() -> None:
    layer = replace(GPT, attention_dropout=0.0, hidden_dropout=0.0)
    assert saved_bytes(layer.operators(UNFUSED)) == S * B * (32 * H + 2 * A * S)


def test_context_parallel_splits_the_queries_and_keeps_every_key_in_the_core() -> None:
    core = named(LLAMA.operators(replace(FLASH, context_parallel=4)), "attention_core")
    assert isinstance(core, AttentionCore)
    assert (core.query_length, core.key_length) == (S // 4, S)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("qkv", (B * S, (32 + 16) * 128 // 8, 4096)),
        ("attention_output", (B * S, 4096, 4096 // 8)),
        ("mlp_up", (B * S, 2 * 14336 // 8, 4096)),
        ("mlp_down", (B * S, 4096, 14336 // 8)),
    ],
)
def test_products_have_the_local_shapes(name: str, shape: tuple[int, int, int]) -> None:
    product = named(LLAMA.operators(replace(FLASH, tensor_parallel=8)), name)
    assert isinstance(product, MatrixProduct)
    assert (product.rows, product.columns, product.inner) == shape


def test_unfused_products_run_once_per_sequence_and_head() -> None:
    scores = named(GPT.operators(replace(UNFUSED, tensor_parallel=8)), "attention_scores")
    assert isinstance(scores, MatrixProduct)
    assert (scores.count, scores.rows, scores.columns, scores.inner) == (B * 8, S, S, 96)
    assert not scores.has_weights


def test_key_heads_are_replicated_when_devices_outnumber_them() -> None:
    cut = replace(FLASH, tensor_parallel=16)
    core = named(LLAMA.operators(cut), "attention_core")
    assert isinstance(core, AttentionCore)
    assert (core.heads, core.kv_heads) == (2, 1)
    surplus = 16 * LLAMA.local_parameters(cut) - LLAMA.parameters
    replicated_norms, replicated_keys = 15 * 2 * 4096, 8 * 2 * 128 * 4096
    assert surplus == replicated_norms + replicated_keys


def test_without_tensor_parallel_nothing_is_communicated() -> None:
    assert collectives(GPT, replace(UNFUSED, sequence_parallel=True)) == []


def test_tensor_parallel_reduces_two_outputs_and_two_input_gradients() -> None:
    cut = replace(FLASH, tensor_parallel=8)
    moved = [(c.operation, c.phase, c.partner, c.hidden_behind) for c in collectives(LLAMA, cut)]
    reduce = Collective.ALL_REDUCE
    assert moved == [
        (reduce, Phase.BACKWARD, "qkv", Phase.WEIGHT_GRADIENT),
        (reduce, Phase.FORWARD, None, None),
        (reduce, Phase.BACKWARD, "mlp_up", Phase.WEIGHT_GRADIENT),
        (reduce, Phase.FORWARD, None, None),
    ]


def test_sequence_parallel_gathers_once_more_in_backward() -> None:
    cut = replace(FLASH, tensor_parallel=8, sequence_parallel=True)
    block = collectives(LLAMA, cut)[:5]
    assert [(c.operation, c.phase, c.hidden_behind) for c in block] == [
        (Collective.ALL_GATHER, Phase.FORWARD, None),
        (Collective.ALL_GATHER, Phase.BACKWARD, Phase.INPUT_GRADIENT),
        (Collective.REDUCE_SCATTER, Phase.BACKWARD, Phase.WEIGHT_GRADIENT),
        (Collective.REDUCE_SCATTER, Phase.FORWARD, None),
        (Collective.ALL_GATHER, Phase.BACKWARD, None),
    ]


@given(t=st.sampled_from([2, 4, 8]), c=st.sampled_from([1, 2, 4]), sequence_parallel=st.booleans())
def test_every_tensor_collective_moves_the_tokens_of_the_group(
    t: int, c: int, *, sequence_parallel: bool
) -> None:
    cut = replace(FLASH, tensor_parallel=t, context_parallel=c, sequence_parallel=sequence_parallel)
    moved = [passed for passed in collectives(LLAMA, cut) if passed.axis == "tensor_parallel"]
    assert {passed.payload_bytes for passed in moved} == {2 * B * S * 4096 // c}


@given(t=st.sampled_from([1, 2, 4, 8]), c=st.sampled_from([2, 4]))
def test_a_ring_passes_the_keys_and_values_of_a_rank_on_to_all_others(t: int, c: int) -> None:
    cut = replace(FLASH, tensor_parallel=t, context_parallel=c)
    ring, gradient = (op for op in collectives(LLAMA, cut) if op.axis == "context_parallel")
    assert ring.payload_bytes == 2 * 2 * B * S // c * 8 // t * 128
    assert gradient.payload_bytes == 2 * ring.payload_bytes
    assert {ring.count, gradient.count} == {c - 1}


@given(t=st.sampled_from([1, 2, 4, 8]), c=st.sampled_from([1, 2, 4]))
def test_local_flops_add_up_to_the_useful_flops(t: int, c: int) -> None:
    cut = replace(FLASH, tensor_parallel=t, context_parallel=c)
    local = sum(
        operator.forward_flops
        for operator in LLAMA.operators(cut)
        if isinstance(operator, MatrixProduct | AttentionCore)
    )
    assert local * t * c == pytest.approx(B * LLAMA.forward_flops_per_sample(S), rel=1e-12)


def test_forward_flops_are_those_of_megatron_without_the_masked_half() -> None:
    # Narayanan et al. (2021), equation 3: 24 s h^2 (1 + s / 6h) forward, all pairs counted.
    assert GPT.forward_flops_per_sample(S) == 24 * S * H**2 + 2 * S**2 * H


@pytest.mark.parametrize(("layer", "parameters"), [(LLAMA, 218_112_000), (GPT, 12 * H**2 + 13 * H)])
def test_parameters_are_counted_with_biases_and_norms(layer: DecoderLayer, parameters: int) -> None:
    assert layer.parameters == parameters
    assert layer.local_parameters(FLASH) == parameters
    assert layer.tied_local_parameters(FLASH) == 0


@pytest.mark.parametrize("layer", [GPT, LLAMA])
@pytest.mark.parametrize("cut", [FLASH, UNFUSED])
def test_operator_names_are_unique_so_that_a_partner_is_found(layer: DecoderLayer, cut: Cut) -> None:
    operators = layer.operators(replace(cut, tensor_parallel=8, sequence_parallel=True))
    names = [operator.name for operator in operators]
    assert len(names) == len(set(names))
    assert {c.partner for c in operators if isinstance(c, CollectivePass)} <= {None, *names}


@given(
    micro_batch_size=st.integers(1, 16),
    t=st.sampled_from([1, 2, 4, 8]),
    sequence_parallel=st.booleans(),
    attention=st.sampled_from(AttentionKind),
)
def test_more_samples_never_save_or_move_less(
    *, micro_batch_size: int, t: int, sequence_parallel: bool, attention: AttentionKind
) -> None:
    cut = Cut(
        micro_batch_size=micro_batch_size,
        sequence_length=1024,
        tensor_parallel=t,
        sequence_parallel=sequence_parallel,
        attention=attention,
    )
    fewer = GPT.operators(cut)
    more = GPT.operators(replace(cut, micro_batch_size=micro_batch_size + 1))
    assert saved_bytes(fewer) < saved_bytes(more)
    for one, other in zip(fewer, more, strict=True):
        if isinstance(one, MemoryPass) and isinstance(other, MemoryPass):
            assert one.forward_bytes < other.forward_bytes
            assert one.backward_bytes < other.backward_bytes


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden": 0}, r"hidden \(0\) must be from 1 to 10000000"),
        ({"hidden": -4096}, r"hidden \(-4096\)"),
        ({"ffn": 10**8}, r"ffn \(100000000\)"),
        ({"heads": True}, r"heads \(True\) must be a whole number"),
        ({"head_dim": "128"}, r"head_dim \('128'\) must be a whole number"),
        ({"head_dim": 128.0}, r"head_dim \(128.0\) must be a whole number"),
        ({"kv_heads": 7}, r"heads \(32\) must be a multiple of kv_heads \(7\)"),
        ({"hidden_dropout": 1.0}, r"hidden_dropout \(1.0\)"),
        ({"attention_dropout": float("nan")}, r"attention_dropout \(nan\)"),
        ({"attention_dropout": "0.1"}, r"attention_dropout \('0.1'\) must be a number"),
    ],
)
def test_nonsense_is_refused_with_its_numbers(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(LLAMA, **changes)  # type: ignore[arg-type]  # what is wrong is the point
