from itertools import combinations

import pytest

from planner.workload.layers import Cut
from planner.workload.operators import CollectivePass, Module, Operator, Phase
from planner.workload.passes import Norm
from planner.workload.recomputation import (
    NOTHING,
    WHOLE_LAYER,
    kept_tensors,
    recomputed_operators,
    saved_bytes,
)
from planner.workload.transformer import DecoderLayer

LAYER = DecoderLayer(
    hidden=1024, ffn=4096, heads=16, kv_heads=16, head_dim=64, norm=Norm.LAYER, hidden_dropout=0.1
)
CUT = Cut(micro_batch_size=1, sequence_length=512, tensor_parallel=4, sequence_parallel=True)
OPERATORS = LAYER.operators(CUT)


def names(operators: tuple[Operator, ...]) -> list[str]:
    return [operator.name for operator in operators]


def kept(*modules: Module) -> set[str]:
    return {tensor.name for tensor in kept_tensors(OPERATORS, recompute=frozenset(modules))}


def test_without_recomputation_everything_stays_and_nothing_runs_again() -> None:
    assert recomputed_operators(OPERATORS, recompute=NOTHING) == ()
    assert len(kept_tensors(OPERATORS, recompute=NOTHING)) == 13


def test_full_recomputation_keeps_the_layers_input_and_runs_every_forward_again() -> None:
    assert kept(*WHOLE_LAYER) == {"attention_norm_input"}
    again = recomputed_operators(OPERATORS, recompute=WHOLE_LAYER)
    forward = [o for o in OPERATORS if not isinstance(o, CollectivePass) or o.phase is Phase.FORWARD]
    assert list(again) == forward


def test_recomputing_the_core_keeps_its_inputs_and_its_output() -> None:
    assert kept() - kept(Module.CORE_ATTENTION) == {"attention_log_sum_exp"}
    assert names(recomputed_operators(OPERATORS, recompute={Module.CORE_ATTENTION})) == ["attention_core"]


def test_recomputing_the_whole_attention_frees_query_key_and_value_too() -> None:
    freed = kept() - kept(Module.CORE_ATTENTION, Module.ATTENTION)
    assert freed == {"query", "key", "value", "attention_log_sum_exp", "attention_output_input"}


def test_recomputing_the_mlp_keeps_its_input_and_gathers_it_again() -> None:
    assert kept() - kept(Module.MLP) == {"mlp_activation_input", "mlp_down_input"}
    assert names(recomputed_operators(OPERATORS, recompute={Module.MLP})) == [
        "mlp_up_input_gather",
        "mlp_up",
        "mlp_activation",
        "mlp_down",
        "mlp_down_output_scatter",
    ]


def test_recomputing_the_norms_drops_their_outputs() -> None:
    assert kept() - kept(Module.NORM) == {"qkv_input", "mlp_up_input"}


@pytest.mark.parametrize("module", Module)
def test_recomputing_more_never_keeps_more(module: Module) -> None:
    for others in combinations(sorted(Module), 2):
        less = saved_bytes(OPERATORS, recompute=set(others))
        assert saved_bytes(OPERATORS, recompute={module, *others}) <= less
