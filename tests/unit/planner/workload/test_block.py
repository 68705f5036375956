from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.job import AttentionKind
from planner.workload.block import Arrangement, BlockLayer
from planner.workload.experts import Experts
from planner.workload.layers import Cut
from planner.workload.mlp import Mlp
from planner.workload.operators import Module, Operator
from planner.workload.passes import Norm
from planner.workload.recomputation import WHOLE_LAYER, kept_tensors, saved_bytes
from planner.workload.self_attention import SelfAttention
from planner.workload.streams import ImageStream, TextStream

H, F, A, D = 512, 2048, 8, 64
ATTENTION = SelfAttention(
    hidden=H, heads=A, kv_heads=A, head_dim=D, rotary=False, qkv_bias=True, output_bias=True, dropout=0.1
)
MLP = Mlp(hidden=H, ffn=F, gated=False, bias=True)
BLOCK = BlockLayer(branches=(ATTENTION, MLP), norm=Norm.LAYER, dropout=0.1)
B, S = 2, 128
CUT = Cut(micro_batch_size=B, sequence_length=S, attention=AttentionKind.UNFUSED)
NORM = 2 * H


def names(operators: tuple[Operator, ...]) -> list[str]:
    return [operator.name for operator in operators]


@pytest.mark.parametrize(
    ("arrangement", "norms"),
    [
        (Arrangement.PRE, 2),
        (Arrangement.POST, 2),
        (Arrangement.SANDWICH, 4),
        (Arrangement.PARALLEL, 2),
        (Arrangement.SHARED, 1),
    ],
)
def test_a_block_has_the_norms_of_its_arrangement(arrangement: Arrangement, norms: int) -> None:
    layer = replace(BLOCK, arrangement=arrangement)
    assert layer.parameters == ATTENTION.parameters + MLP.parameters + norms * NORM
    kinds = [name for name in names(layer.operators(CUT)) if name.endswith("norm")]
    assert len(kinds) == len(set(kinds)) == norms


@pytest.mark.parametrize("arrangement", [Arrangement.PRE, Arrangement.POST])
def test_norms_before_and_after_save_the_same(arrangement: Arrangement) -> None:
    # Korthikanti et al. (2022) count 34 s b h + 5 a s^2 b, wherever the norms stand.
    layer = replace(BLOCK, arrangement=arrangement)
    assert saved_bytes(layer.operators(CUT)) == S * B * (34 * H + 5 * A * S)


@pytest.mark.parametrize(
    ("arrangement", "fewer_tensors"),
    [(Arrangement.PARALLEL, 1), (Arrangement.SHARED, 2), (Arrangement.SANDWICH, -2)],
)
def test_what_branches_share_is_saved_once(arrangement: Arrangement, fewer_tensors: int) -> None:
    # Side by side they share the block's input, behind one norm its output too; norms after save theirs.
    layer = replace(BLOCK, arrangement=arrangement)
    saved = saved_bytes(BLOCK.operators(CUT)) - saved_bytes(layer.operators(CUT))
    assert saved == fewer_tensors * 2 * S * B * H


@pytest.mark.parametrize("arrangement", Arrangement)
def test_recomputing_the_block_leaves_its_input(arrangement: Arrangement) -> None:
    layer = replace(BLOCK, arrangement=arrangement)
    assert saved_bytes(layer.operators(CUT), recompute=WHOLE_LAYER) == 2 * S * B * H


def test_norms_stand_in_the_order_of_their_arrangement() -> None:
    sandwich = names(replace(BLOCK, arrangement=Arrangement.SANDWICH).operators(CUT))
    places = [
        sandwich.index(name) for name in ("mlp_norm", "mlp_up", "mlp_down", "mlp_post_norm", "mlp_residual")
    ]
    assert places == sorted(places)
    assert names(replace(BLOCK, arrangement=Arrangement.POST).operators(CUT))[-2:] == [
        "mlp_residual",
        "mlp_norm",
    ]


def test_a_lone_branch_makes_a_block() -> None:
    layer = BlockLayer(branches=(MLP,), norm=Norm.RMS)
    assert layer.parameters == MLP.parameters + H
    assert names(layer.operators(CUT)) == ["mlp_norm", "mlp_up", "mlp_activation", "mlp_down", "mlp_residual"]


def test_a_block_is_called_by_its_role() -> None:
    assert (BLOCK.kind, replace(BLOCK, role="encoder").kind) == ("decoder", "encoder")


def test_a_block_of_images_works_on_all_their_tokens_whole() -> None:
    images = ImageStream(image_size=224, patch_size=16, extra_tokens=1, images=3)
    layer = replace(BLOCK, role="vision", stream=images)
    cut = replace(CUT, tensor_parallel=2, sequence_parallel=True, context_parallel=4)
    alone = replace(CUT, micro_batch_size=3 * B, sequence_length=197, tensor_parallel=2)
    assert layer.operators(cut) == BLOCK.operators(alone)
    assert layer.forward_flops_per_sample(S) == 3 * BLOCK.forward_flops_per_sample(197)


def test_without_images_nothing_runs() -> None:
    images = ImageStream(image_size=224, patch_size=16, images=0)
    layer = replace(BLOCK, stream=images)
    assert layer.operators(CUT) == ()
    assert layer.forward_flops_per_sample(S) == 0
    assert layer.parameters == BLOCK.parameters


def test_a_block_on_the_decoders_side_has_the_decoders_length() -> None:
    layer = replace(BLOCK, stream=TextStream(is_target=True, length=32))
    assert layer.operators(CUT) == BLOCK.operators(replace(CUT, sequence_length=32, memory_length=S))
    assert layer.forward_flops_per_sample(S) == BLOCK.forward_flops_per_sample(32)


@given(t=st.sampled_from([1, 2, 4, 8]), arrangement=st.sampled_from(Arrangement))
def test_devices_hold_all_parameters_and_replicas_of_what_follows_a_sum(
    t: int, arrangement: Arrangement
) -> None:
    layer = replace(BLOCK, arrangement=arrangement)
    surplus = t * layer.local_parameters(replace(CUT, tensor_parallel=t)) - layer.parameters
    replicated = arrangement.norms(2) * NORM + 2 * H
    assert surplus == (t - 1) * replicated


def test_a_recomputed_norm_frees_what_the_branch_had_saved_of_it() -> None:
    kept = {tensor.name for tensor in kept_tensors(BLOCK.operators(CUT), recompute={Module.NORM})}
    assert not kept & {"qkv_input", "mlp_up_input"}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"branches": ()}, "branches must be at least one"),
        ({"branches": (ATTENTION, replace(MLP, hidden=256))}, "branches must all read 512 channels"),
        ({"norm": None}, "norm"),
        ({"arrangement": "pre"}, "arrangement"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(BLOCK, **changes)  # type: ignore[arg-type]  # what is wrong is the point


def test_norms_that_kernels_join_to_a_product_run_again_with_it() -> None:
    joined = replace(CUT, keeping=replace(CUT.keeping, joins_norms=True))
    operators = BLOCK.operators(joined)
    everything = {tensor.name for tensor in kept_tensors(operators, recompute=())}
    assert {tensor.name for tensor in kept_tensors(operators, recompute={Module.NORM})} == everything
    left = {tensor.name for tensor in kept_tensors(operators, recompute={Module.MLP})}
    assert everything - left == {"mlp_up_input", "mlp_activation_input", "mlp_down_input"}
    assert saved_bytes(operators) == saved_bytes(BLOCK.operators(CUT))


def test_norms_before_latent_attention_and_experts_stand_alone() -> None:
    experts = BlockLayer(branches=(ATTENTION, Experts(hidden=H, experts=4, top_k=2, ffn=F)))
    joined = replace(CUT, keeping=replace(CUT.keeping, joins_norms=True))
    norms = {op.name: op.module for op in experts.operators(joined) if op.name.endswith("norm")}
    assert norms == {"attention_norm": Module.INNER_NORM, "moe_norm": Module.NORM}
