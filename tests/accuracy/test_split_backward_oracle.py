"""What a split backward pass keeps and runs again in torch, against what is priced for it.

A chain of decoder layers in FP32 on the CPU through torch.distributed.pipelining's own two halves of a
backward pass: storages that live are added up, forward passes counted.
"""

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from planner.cost.split_backward import graph_bytes, held_bytes
from planner.workload.chain import workload_from_layers
from planner.workload.layers import Cut
from planner.workload.recomputation import saved_bytes
from profiler.trial.account import LiveBytes
from tests.accuracy.plain_llama import Block, Sizes

SIZES = Sizes(hidden=128, ffn=352, heads=4, kv_heads=2, sequence_length=256)
SAMPLES, LAYERS, FP32 = 1, 2, 4
TOLERANCE_FRACTION = 0.05


@dataclass(frozen=True, kw_only=True)
class Halves:
    """Live bytes after forward, after gradients of inputs, after those of weights; forward passes in each."""

    forward: float
    inputs: float
    weights: float
    passes: tuple[int, int, int]


class Chain(nn.Module):
    """Decoder layers that count how often they run."""

    def __init__(self, *, is_checkpointed: bool) -> None:
        super().__init__()
        self.runs = 0
        blocks = [Block(SIZES) for _ in range(LAYERS)]
        for block in blocks:
            block.register_forward_pre_hook(self._count)
        self.blocks = nn.ModuleList(checkpoint_wrapper(b) if is_checkpointed else b for b in blocks)
        self.cosine = torch.ones(SIZES.sequence_length, 1, SIZES.head_dim // 2)

    def _count(self, *_: object) -> None:
        self.runs += 1

    def forward(self, x_BSE: Tensor) -> Tensor:
        """Return the last layer's output."""
        for block in self.blocks:
            x_BSE = block(x_BSE, self.cosine)
        return x_BSE


def halves_of(*, is_checkpointed: bool) -> Halves:
    chain = Chain(is_checkpointed=is_checkpointed)
    for parameter in chain.parameters():
        parameter.grad = torch.zeros_like(parameter)
    gradients = [parameter.grad for parameter in chain.parameters() if parameter.grad is not None]
    x_BSE = torch.randn(SAMPLES, SIZES.sequence_length, SIZES.hidden, requires_grad=True)
    watcher = LiveBytes([*chain.parameters(), *gradients, x_BSE, chain.cosine])
    start, runs, live = watcher.live_bytes(), [0], []
    with watcher:
        out = chain(x_BSE)
        live.append(watcher.live_bytes() - start)
        runs.append(chain.runs)
        _, groups = stage_backward_input([out], [torch.ones_like(out)], [x_BSE], chain.parameters())
        del out
        x_BSE.grad = None
        live.append(watcher.live_bytes() - start)
        runs.append(chain.runs)
        stage_backward_weight(chain.parameters(), groups)
        del groups
        live.append(watcher.live_bytes() - start)
        runs.append(chain.runs)
    forward, inputs, weights = (after - before for before, after in pairwise(runs))
    return Halves(forward=live[0], inputs=live[1], weights=live[2], passes=(forward, inputs, weights))


def test_all_that_was_saved_and_the_gradients_of_outputs_stay_until_the_weights_have_theirs() -> None:
    halves = halves_of(is_checkpointed=False)
    document = {
        "layers": [
            {
                "kind": "decoder",
                "hidden": SIZES.hidden,
                "ffn": SIZES.ffn,
                "heads": SIZES.heads,
                "kv_heads": SIZES.kv_heads,
                "head_dim": SIZES.head_dim,
            }
        ]
    }
    cut = Cut(micro_batch_size=SAMPLES, sequence_length=SIZES.sequence_length, element_bytes=FP32)
    (run,) = workload_from_layers(document).runs
    operators = run.layer.operators(cut)
    kept = saved_bytes(operators)
    more = LAYERS * (graph_bytes(operators, cut, saved_bytes=kept) - kept)
    assert halves.inputs - halves.forward == pytest.approx(more, rel=TOLERANCE_FRACTION)
    # Far more than the products need.
    assert halves.inputs > 1.1 * LAYERS * held_bytes(operators, cut)
    assert halves.weights < TOLERANCE_FRACTION * halves.forward


def test_a_checkpointed_layer_runs_again_for_every_one_of_its_weights() -> None:
    weights = len(list(Block(SIZES).parameters()))
    assert halves_of(is_checkpointed=True).passes == (LAYERS, LAYERS, weights * LAYERS)
    assert halves_of(is_checkpointed=False).passes == (LAYERS, 0, 0)
