"""Predicted memory against PyTorch's own trackers, which know nothing of the planner.

Nothing is computed and nobody is sent anything: tensors are fake ones on the CPU, and so is the process
group. On a CPU PyTorch runs every pass operation by operation, RMS norms in FP32 among them.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, distributed, nn, optim
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import loss_parallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from planner.cluster_presets import cluster_from_preset
from planner.job import Constraints, Job, Precision, SolverLimits
from planner.plan import MemoryBreakdown
from planner.planning import PlanRequest, evaluate_plan
from planner.profile import builtin_profile
from planner.strategy import ShortPlan
from planner.workload.chain import workload_from_layers
from tests.accuracy.plain_llama import PlainLlama, Sizes, shard_over_replicas, split_over_tensor_ranks

TOLERANCE_FRACTION = 0.02
SIZES = Sizes()
SAMPLES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How a run is cut: ``replicas`` share parameters, gradients and states by FSDP2."""

    replicas: int
    tensor_parallel: int
    sequence_parallel: bool = False

    @property
    def precision(self) -> Precision:
        """FSDP2 computes in BF16 on FP32 parameters; without it everything is FP32."""
        return Precision.BF16 if self.replicas > 1 else Precision.FP32

    def __str__(self) -> str:
        sequence = ", sequence parallel" if self.sequence_parallel else ""
        return f"fsdp {self.replicas}, tensor parallel {self.tensor_parallel}{sequence}"


CUTS = (
    Cut(replicas=8, tensor_parallel=1),
    Cut(replicas=64, tensor_parallel=1),
    Cut(replicas=1, tensor_parallel=8),
    Cut(replicas=1, tensor_parallel=8, sequence_parallel=True),
    Cut(replicas=2, tensor_parallel=4, sequence_parallel=True),
    Cut(replicas=8, tensor_parallel=8),
    Cut(replicas=8, tensor_parallel=8, sequence_parallel=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracked:
    """Bytes of one device in a second step: activations at the end of forward, gradients after backward."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int


@pytest.fixture(params=CUTS, ids=str)
def cut(request: pytest.FixtureRequest) -> Iterator[Cut]:
    cut: Cut = request.param
    world_size = cut.replicas * cut.tensor_parallel
    distributed.init_process_group("fake", rank=0, world_size=world_size, store=FakeStore())
    yield cut
    distributed.destroy_process_group()


def test_states_and_saved_activations_are_those_that_torch_counts(cut: Cut) -> None:
    tracked, predicted = tracked_step(cut), predicted_bytes(cut)
    assert predicted.parameters == pytest.approx(tracked.parameters, rel=TOLERANCE_FRACTION)
    assert predicted.gradients == pytest.approx(tracked.gradients, rel=TOLERANCE_FRACTION)
    assert predicted.optimizer == pytest.approx(tracked.optimizer, rel=TOLERANCE_FRACTION)
    activations = predicted.activations + predicted.logits
    assert activations == pytest.approx(tracked.activations, rel=TOLERANCE_FRACTION)


def model_document() -> dict[str, object]:
    """Return the same model as a chain of layers."""
    return {
        "layers": [
            {"kind": "embedding", "vocabulary": SIZES.vocabulary, "hidden": SIZES.hidden},
            {
                "kind": "decoder",
                "count": SIZES.layers,
                "hidden": SIZES.hidden,
                "ffn": SIZES.ffn,
                "heads": SIZES.heads,
                "kv_heads": SIZES.kv_heads,
                "head_dim": SIZES.head_dim,
            },
            {"kind": "norm", "hidden": SIZES.hidden},
            {"kind": "head", "vocabulary": SIZES.vocabulary, "hidden": SIZES.hidden},
        ]
    }


def predicted_bytes(cut: Cut) -> MemoryBreakdown:
    request = PlanRequest(
        workload=workload_from_layers(model_document()),
        cluster=cluster_from_preset("h100-sxm", cut.replicas * cut.tensor_parallel),
        job=Job(
            global_batch_size=SAMPLES * cut.replicas,
            sequence_length=SIZES.sequence_length,
            precision=cut.precision,
            framework="pytorch",
        ),
        constraints=Constraints(),
        solver=SolverLimits(),
        profiles=(builtin_profile("h100-sxm/published"),),
    )
    plan = ShortPlan(
        tensor_parallel=cut.tensor_parallel,
        data_parallel=cut.replicas,
        micro_batch_size=SAMPLES,
        sequence_parallel=cut.sequence_parallel,
        zero_stage=3 if cut.replicas > 1 else 0,
    )
    prediction = evaluate_plan(request, plan).prediction
    assert prediction is not None
    return prediction.memory[0].breakdown_bytes


def tracked_step(cut: Cut) -> Tracked:
    """Return what the trackers count in the second of two steps, when the optimizer has its states."""
    mesh = init_device_mesh(
        "cpu", (cut.replicas, cut.tensor_parallel), mesh_dim_names=("replicas", "tensor_parallel")
    )
    mode = FakeTensorMode()
    model = cut_model(cut, mesh, mode)
    with mode:
        # One parameter at a time: the states of many at once make temporaries as large as they are.
        optimizer = optim.AdamW(model.parameters(), foreach=False)
        tracker = tracker_of(model, optimizer, is_sharded=cut.replicas > 1)
        with tracker:
            step(model, optimizer, tracker, cut)
            return step(model, optimizer, tracker, cut)


def cut_model(cut: Cut, mesh: DeviceMesh, mode: FakeTensorMode) -> PlainLlama:
    replicas, tensor_ranks = mesh["replicas"], mesh["tensor_parallel"]
    with mode:
        dtype = torch.bfloat16 if cut.replicas > 1 else torch.float32
        model = PlainLlama(SIZES, rotary_dtype=dtype)
        if cut.tensor_parallel > 1:
            split_over_tensor_ranks(model, tensor_ranks, sequence_parallel=cut.sequence_parallel)
    # A mesh is made of real tensors, which a fake mode refuses to join.
    if cut.replicas > 1:
        shard_over_replicas(model, replicas)
    return model


def tracker_of(model: nn.Module, optimizer: optim.Optimizer, *, is_sharded: bool) -> MemTracker:
    if is_sharded:
        return FSDPMemTracker(model, optimizer)
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    return tracker


def step(model: PlainLlama, optimizer: optim.Optimizer, tracker: MemTracker, cut: Cut) -> Tracked:
    tracker.reset_mod_stats()
    with ExitStack() as stack:
        if cut.tensor_parallel > 1:
            stack.enter_context(loss_parallel())
        loss = loss_of(model)
        forward = counted(tracker)
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch does not type it
    backward = counted(tracker)
    optimizer.step()
    optimizer.zero_grad()
    return Tracked(
        parameters=forward.get("Sharded Param", 0) + forward.get("Parameter", 0),
        gradients=backward.get("Sharded Grad", 0) + backward.get("Gradient", 0),
        optimizer=forward.get("OptState", 0) + forward.get("Optstate", 0),
        activations=forward["Activation"],
    )


def loss_of(model: PlainLlama) -> Tensor:
    shape = (SAMPLES, SIZES.sequence_length)
    tokens, targets = (torch.randint(0, SIZES.vocabulary, shape) for _ in range(2))
    logits = model(tokens)
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def counted(tracker: MemTracker) -> dict[str, int]:
    """Return the bytes of each kind of tensor on the device at this moment."""
    snapshot = tracker.get_tracker_snapshot()
    return {
        str(getattr(kind, "value", kind)): size for kinds in snapshot.values() for kind, size in kinds.items()
    }
