"""Predicted memory of models trained in part against what PyTorch's autograd saves.

One device, FP32, fake tensors: what a frozen weight no longer saves, and what an adapter saves besides.
"""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from planner.cluster_presets import cluster_from_preset
from planner.framework import FP32_BYTES
from planner.job import Constraints, Job, Precision, SolverLimits, Trainable, TrainableKind
from planner.plan import MemoryBreakdown
from planner.planning import PlanRequest, evaluate_plan
from planner.profile import builtin_profile
from planner.strategy import ShortPlan
from planner.workload.chain import workload_from_layers
from tests.accuracy.plain_llama import PlainLlama
from tests.accuracy.test_memory_oracle import (
    SAMPLES,
    SIZES,
    TOLERANCE_FRACTION,
    loss_of,
    model_document,
)

RANK = 16
MOMENTS = 2
ADAPTED = Trainable(kind=TrainableKind.LORA, rank=RANK)
PARTS = {
    "embedding": "embedding",
    "blocks": "decoder",
    "norm": "norm",
    "head": "head",
}
"""Modules of the model, and the kinds of layers that they are."""
MAPS = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "o_proj",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
}
"""Products of the model, and the targets that they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """Bytes of parameters, of those that are trained, and of what is saved for backward."""

    parameters: int
    trained: int
    saved: int


class Adapted(nn.Module):
    """A frozen product with an adapter beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))  # type: ignore[no-any-return]  # nn.Module is called as Any


@pytest.mark.parametrize(
    "trainable",
    [
        Trainable(),
        Trainable(frozen=("embedding",)),
        Trainable(frozen=("decoder",)),
        Trainable(frozen=("embedding", "norm", "head")),
        Trainable(frozen=("decoder", "norm", "head")),
        ADAPTED,
        replace(ADAPTED, targets=("q_proj", "v_proj")),
        replace(ADAPTED, targets=("down_proj",)),
    ],
    ids=lambda trainable: f"{trainable.kind} {trainable.frozen or trainable.targets or ''}",
)
def test_a_model_trained_in_part_keeps_what_autograd_saves(trainable: Trainable) -> None:
    kept, predicted = kept_by_torch(trainable), predicted_bytes(trainable)
    assert predicted.parameters == kept.parameters
    assert predicted.gradients == kept.trained
    assert predicted.optimizer == MOMENTS * kept.trained
    activations = predicted.activations + predicted.logits
    assert activations == pytest.approx(kept.saved, rel=TOLERANCE_FRACTION)


def predicted_bytes(trainable: Trainable) -> MemoryBreakdown:
    request = PlanRequest(
        workload=workload_from_layers(model_document()),
        cluster=cluster_from_preset("h100-sxm", 1),
        job=Job(
            global_batch_size=SAMPLES,
            sequence_length=SIZES.sequence_length,
            precision=Precision.FP32,
            framework="pytorch",
            trainable=trainable,
        ),
        constraints=Constraints(),
        solver=SolverLimits(),
        profiles=(builtin_profile("h100-sxm/published"),),
    )
    prediction = evaluate_plan(request, ShortPlan(micro_batch_size=SAMPLES, zero_stage=0)).prediction
    assert prediction is not None
    return prediction.memory[0].breakdown_bytes


def kept_by_torch(trainable: Trainable) -> Kept:
    """Return what a model keeps at the end of its forward pass: tensors saved twice count once."""
    saved: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage._cdata] = storage.nbytes()
        return tensor

    with FakeTensorMode():
        model = PlainLlama(SIZES, rotary_dtype=torch.float32)
        if trainable.has_adapters:
            add_adapters(model, trainable)
        else:
            freeze(model, trainable)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss = loss_of(model)
        assert loss.requires_grad
        parameters = list(model.parameters())
        for held in (*parameters, *model.buffers()):
            saved.pop(held.untyped_storage()._cdata, None)
    return Kept(
        parameters=FP32_BYTES * sum(parameter.numel() for parameter in parameters),
        trained=FP32_BYTES * sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        saved=sum(saved.values()),
    )


def freeze(model: PlainLlama, trainable: Trainable) -> None:
    for name, kind in PARTS.items():
        if kind in trainable.frozen:
            model.get_submodule(name).requires_grad_(requires_grad=False)


def add_adapters(model: PlainLlama, trainable: Trainable) -> None:
    """Freeze all, and put adapters beside the targets; embeddings ask for a gradient, as PEFT has it."""
    model.requires_grad_(requires_grad=False)
    model.embedding.register_forward_hook(lambda _module, _inputs, output: output.requires_grad_())
    for block in model.blocks:
        for part in (block.get_submodule("attention"), block.get_submodule("mlp")):
            for name, product in list(part.named_children()):
                if trainable.targets is None or MAPS[name] in trainable.targets:
                    assert isinstance(product, nn.Linear)
                    setattr(part, name, Adapted(product))
