from dataclasses import replace

from planner.workload.block import BlockLayer
from planner.workload.ends import HeadLayer
from planner.workload.experts import Experts
from planner.workload.huggingface import workload_from_config
from planner.workload.layers import Cut
from planner.workload.operators import CollectivePass
from planner.workload.prediction import PredictionLayer
from planner.workload.self_attention import SelfAttention

H, V = 256, 1000
BLOCK = BlockLayer(
    branches=(
        SelfAttention(hidden=H, heads=4, kv_heads=4, head_dim=64),
        Experts(hidden=H, experts=8, top_k=2, ffn=64, correction_bias=True),
    )
)
EXTRA = PredictionLayer(block=BLOCK, vocabulary=V)
CUT = Cut(micro_batch_size=2, sequence_length=128)


def test_an_extra_layer_is_a_map_a_block_and_three_norms() -> None:
    assert EXTRA.kind == "mtp"
    assert EXTRA.parameters == BLOCK.parameters + 2 * H * H + 3 * H
    assert EXTRA.local_parameters(CUT) == EXTRA.parameters


def test_it_uses_the_models_embedding_and_head() -> None:
    assert EXTRA.tied_local_parameters(CUT) == V * H
    head = HeadLayer(vocabulary=V, hidden=H, tied=True).forward_flops_per_sample(128)
    assert EXTRA.forward_flops_per_sample(128) == (
        BLOCK.forward_flops_per_sample(128) + head + 2 * 128 * 2 * H * H
    )


def test_it_has_the_experts_of_its_block() -> None:
    cut = replace(CUT, expert_parallel=4)
    assert EXTRA.local_expert_parameters(cut) == BLOCK.local_expert_parameters(cut)
    assert (EXTRA.idle_parameters, EXTRA.buffers) == (BLOCK.idle_parameters, BLOCK.buffers)
    assert EXTRA.splits == BLOCK.splits


def test_its_operators_have_names_of_their_own_and_find_their_partners() -> None:
    operators = EXTRA.operators(replace(CUT, tensor_parallel=4, sequence_parallel=True))
    names = [op.name for op in operators]
    assert len(names) == len(set(names))
    assert {op.partner for op in operators if isinstance(op, CollectivePass)} <= {None, *names}
    assert "mtp_logits" in names


def test_extra_layers_are_counted_apart_from_the_model() -> None:
    config = {"model_type": "deepseek_v3", "num_hidden_layers": 5}
    alone = workload_from_config({**config, "num_nextn_predict_layers": 0})
    extra = workload_from_config({**config, "num_nextn_predict_layers": 2})
    assert alone.parameters == extra.parameters
    assert alone.active_parameters == extra.active_parameters
    assert alone.buffers == extra.buffers == 2 * 256
    assert extra.prediction_parameters == 2 * extra.layer("mtp").parameters
    assert [run.layer.kind for run in extra.runs][-3:] == ["mtp", "norm", "head"]
