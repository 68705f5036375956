"""A module run with values on the processor: what torch itself counts of it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from planner.units import Bytes, Flops
from planner.workload.layers import Cut, Workload
from planner.workload.operators import AttentionCore, MatrixProduct, MemoryPass, Operator
from planner.workload.recomputation import saved_bytes
from profiler.tracing.inputs import input_shape
from profiler.tracing.modules import Factory
from profiler.tracing.trace import trace

BATCH = 4
CUT = Cut(micro_batch_size=BATCH, sequence_length=1, element_bytes=4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """FLOP and saved bytes of one micro-batch."""

    forward_flops: Flops
    backward_flops: Flops
    saved_bytes: Bytes


def really_counted(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> Counted:
    """Run a module and count: FLOP by the formulas of torch, saved bytes once for each storage.

    oneDNN runs no recurrence here: torch knows no FLOP of its own.
    """
    weights = {address(weight) for weight in (*module.parameters(), *module.buffers())}
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if address(tensor) not in weights:
            storages[address(tensor)] = tensor.untyped_storage()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept)
    is_recurrent = any(isinstance(part, torch.nn.RNNBase) for part in module.modules())
    with without_mkldnn() if is_recurrent else nullcontext():
        with FlopCounterMode(display=False) as forward, hooks:
            outputs = [leaf for leaf in tree_leaves(module.train()(*inputs)) if leaf.requires_grad]
        with FlopCounterMode(display=False) as backward:
            torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    return Counted(
        forward_flops=forward.get_total_flops(),
        backward_flops=backward.get_total_flops(),
        saved_bytes=sum(storage.nbytes() for storage in storages.values()),
    )


@contextmanager
def without_mkldnn() -> Iterator[None]:
    """As ``torch.backends.mkldnn.flags``, which warns of GPUs that it has no support for."""
    was_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(not was_enabled)
    yield
    torch._C._set_mkldnn_enabled(was_enabled)


def address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def traced(factory: Factory, *shapes: str, dtype: torch.dtype = torch.float32) -> Workload:
    """Trace a module by the shapes of its inputs as the command line spells them."""
    return trace(factory, [input_shape(shape) for shape in shapes], dtype=dtype)


def planned(workload: Workload) -> Counted:
    """Return what the planner counts of one micro-batch."""
    products = products_of(workload)
    return Counted(
        forward_flops=BATCH * workload.forward_flops_per_sample(1),
        backward_flops=sum(op.forward_flops * (1 + op.has_input_gradient) for op in products),
        saved_bytes=saved_bytes(operators_of(workload)),
    )


def operators_of(workload: Workload) -> list[Operator]:
    return [op for run in workload.runs for _ in range(run.count) for op in run.layer.operators(CUT)]


def products_of(workload: Workload) -> list[MatrixProduct]:
    return [op for op in operators_of(workload) if isinstance(op, MatrixProduct)]


def attention_of(workload: Workload) -> AttentionCore:
    """Return the one attention of a chain."""
    (core,) = [op for op in operators_of(workload) if isinstance(op, AttentionCore)]
    return core


def passes_of(workload: Workload) -> list[MemoryPass]:
    return [op for op in operators_of(workload) if isinstance(op, MemoryPass)]


def roles(workload: Workload) -> list[tuple[str, int]]:
    return [(run.layer.kind, run.count) for run in workload.runs]
