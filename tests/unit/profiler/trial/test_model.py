from typing import Any

import pytest
import torch

from planner.strategy import Recompute
from planner.workload.chain import workload_from_layers
from planner.workload.classifier import ClassifierLayer
from profiler.trial.errors import PlanCannotRun
from profiler.trial.model import Chunk, build_chunk
from profiler.trial.order import PlacedLayer
from tests.unit.profiler.trial.orders import chain, order

CPU = torch.device("cpu")
TOKENS = torch.arange(16).view(2, 8)


def model(**changes: Any) -> Chunk:  # noqa: ANN401 - as `order`
    asked = order(**changes)
    return build_chunk(asked.layers, device=CPU, job=asked.job)


def with_entry(number: int, **fields: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of a layer
    layers = chain()
    layers[number] = layers[number] | fields
    return layers


@pytest.mark.parametrize(
    "layers",
    [
        chain(),
        chain(gated=False, norm="layer", rotary=False, qkv_bias=True, output_bias=True, mlp_bias=True),
        with_entry(0, positions=8),
        with_entry(3, tied=True),
        with_entry(3, bias=True),
    ],
    ids=["gated", "plain with biases", "positions", "tied", "bias of the head"],
)
def test_a_model_has_the_parameters_of_its_chain(layers: list[dict[str, Any]]) -> None:
    built = model(layers=layers)
    assert (
        sum(each.numel() for each in built.parameters())
        == workload_from_layers({"layers": layers}).parameters
    )
    assert built(TOKENS).shape == (2, 8, 32)


def test_a_layer_has_the_same_weights_wherever_it_is_built() -> None:
    asked = order()
    whole = build_chunk(asked.layers, device=CPU, job=asked.job)
    part = build_chunk(asked.layers[2:], device=CPU, job=asked.job)
    ours, theirs = whole.layers[2].state_dict(), part.layers[0].state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    before = whole.layers[1].state_dict()
    assert not torch.equal(ours["attention.query.weight"], before["attention.query.weight"])


def test_a_position_sees_none_that_follow() -> None:
    built = model()
    changed = TOKENS.clone()
    changed[:, 5:] = 0
    torch.testing.assert_close(built(TOKENS)[:, :5], built(changed)[:, :5])
    assert not torch.allclose(built(TOKENS)[:, 5:], built(changed)[:, 5:])


@pytest.mark.parametrize(
    "changes",
    [
        {"job": {"unfused_attention": True}},
        {"recompute": {"mode": "selective", "modules": ["core_attention"]}},
    ],
    ids=["unfused", "recomputed"],
)
def test_attention_gives_the_same_however_it_runs(changes: dict[str, Any]) -> None:
    plain, other = model(), model(**changes)
    torch.testing.assert_close(other(TOKENS), plain(TOKENS))
    for built in (plain, other):
        built(TOKENS).square().mean().backward()
    for ours, theirs in zip(plain.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_parameters_are_as_wide_as_the_job_says() -> None:
    assert {each.dtype for each in model(job={"parameter_dtype": "bf16"}).parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (chain(window=4), "no window"),
        (chain(query_key_norm=True), "no norm of queries"),
        (chain(arrangement="post"), "no post arrangement"),
        (chain(hidden_dropout=0.1), "no dropout"),
        (chain(norm="plain_layer"), "no plain_layer norm"),
        (with_entry(0, types=2), "no token types"),
    ],
)
def test_what_a_plain_decoder_does_not_have_is_refused_by_name(
    layers: list[dict[str, Any]], reason: str
) -> None:
    with pytest.raises(PlanCannotRun, match=reason):
        model(layers=layers)


def test_layers_of_other_kinds_are_refused_by_name() -> None:
    layer = ClassifierLayer(hidden=16, classes=4)
    placed = PlacedLayer(number=0, layer=layer, recompute=Recompute())
    with pytest.raises(PlanCannotRun, match="like ClassifierLayer"):
        build_chunk([placed], device=CPU, job=order().job)


def test_a_tied_head_needs_its_embedding_on_the_same_stage() -> None:
    asked = order(layers=with_entry(3, tied=True))
    with pytest.raises(PlanCannotRun, match="tied"):
        build_chunk(asked.layers[2:], device=CPU, job=asked.job)
