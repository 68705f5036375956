from dataclasses import replace

import pytest

from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer, NormLayer
from planner.workload.layers import Cut
from planner.workload.operators import CollectivePass, MatrixProduct
from planner.workload.passes import Norm
from planner.workload.recomputation import saved_bytes

CUT = Cut(micro_batch_size=2, sequence_length=1024)
TOKENS = 2 * 1024
EMBEDDING = EmbeddingLayer(vocabulary=50257, hidden=768, positions=1024, dropout=0.1)
HEAD = HeadLayer(vocabulary=50257, hidden=768, tied=True)


def test_a_tied_head_has_no_parameters_but_a_copy_on_another_stage() -> None:
    assert HEAD.parameters == HEAD.local_parameters(CUT) == 0
    assert HEAD.tied_local_parameters(CUT) == 50257 * 768


def test_an_untied_head_has_weights_and_perhaps_a_bias() -> None:
    head = replace(HEAD, tied=False, bias=True)
    assert head.parameters == 50257 * 769
    assert head.local_parameters(replace(CUT, tensor_parallel=2, vocabulary_multiple=128)) == 25216 * 769
    assert head.tied_local_parameters(CUT) == 0


def test_a_head_saves_its_input_and_the_softmax_in_fp32() -> None:
    assert saved_bytes(HEAD.operators(CUT)) == TOKENS * (2 * 768 + 4 * 50257)


def test_a_head_multiplies_by_the_padded_vocabulary_and_counts_the_true_one() -> None:
    logits = next(o for o in HEAD.operators(replace(CUT, vocabulary_multiple=128)) if o.name == "logits")
    assert isinstance(logits, MatrixProduct)
    assert (logits.rows, logits.columns, logits.inner) == (TOKENS, 50304, 768)
    assert HEAD.forward_flops_per_sample(1024) == 2 * 1024 * 768 * 50257


@pytest.mark.parametrize(
    ("sequence_parallel", "names"),
    [
        (False, ["logits_input_gradient_reduce"]),
        (True, ["logits_input_gather", "logits_saved_input_gather", "logits_input_gradient_scatter"]),
    ],
)
def test_a_split_head_agrees_on_the_loss_of_every_token(
    sequence_parallel: bool,  # noqa: FBT001
    names: list[str],
) -> None:
    cut = replace(CUT, tensor_parallel=8, sequence_parallel=sequence_parallel)
    collectives = [c for c in HEAD.operators(cut) if isinstance(c, CollectivePass)]
    assert [c.name for c in collectives] == [*names, "loss_maximum", "loss_target", "loss_sum"]
    assert {c.payload_bytes for c in collectives[-3:]} == {4 * TOKENS}


def test_the_final_norm_is_replicated_and_saves_its_shard() -> None:
    norm = NormLayer(hidden=768, norm=Norm.LAYER)
    cut = replace(CUT, tensor_parallel=8, sequence_parallel=True)
    assert norm.parameters == norm.local_parameters(cut) == 2 * 768
    assert saved_bytes(norm.operators(cut)) == 2 * TOKENS * 768 // 8
    assert norm.forward_flops_per_sample(1024) == norm.tied_local_parameters(cut) == 0


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ({"vocabulary": 0}, r"vocabulary \(0\)"),
        ({"hidden": 2.5}, r"hidden \(2.5\) must be a whole number"),
        ({"positions": -1}, r"positions \(-1\) must be from 0"),
        ({"dropout": -0.1}, r"dropout \(-0.1\)"),
    ],
)
def test_nonsense_is_refused_with_its_numbers(sizes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(EMBEDDING, **sizes)  # type: ignore[arg-type]  # what is wrong is the point
