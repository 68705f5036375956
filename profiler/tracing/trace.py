"""A module as a workload: run with several batches on the meta device, its layers by the sample."""

from collections.abc import Sequence
from typing import Final

import torch

from planner.workload.layers import Workload, runs_of
from profiler.tracing.fused import FusedFunctions
from profiler.tracing.inputs import InputShape
from profiler.tracing.layers import layers_of
from profiler.tracing.modules import Factory, made_on_meta
from profiler.tracing.per_sample import layers_per_sample
from profiler.tracing.recording import record

BATCHES: Final = (2, 3, 5)
"""Two give a line, the third shows that it is one. None is 1, which norms over the batch refuse."""


def trace(factory: Factory, inputs: Sequence[InputShape], *, dtype: torch.dtype = torch.float32) -> Workload:
    """Return the chain of layers of the module that a factory makes.

    Raises UntraceableModule for a module that cannot be made, run without values, or whose samples are
    mixed.
    """
    module = made_on_meta(factory, dtype=dtype)
    runs = {
        batch: layers_of(
            record(
                module,
                [shape.tensor(batch, dtype=dtype) for shape in inputs],
                activation_dtype=dtype,
                modes=lambda recorder: (FusedFunctions(recorder),),
            )
        )
        for batch in BATCHES
    }
    name = type(module).__name__
    return Workload(name=name, family="traced", runs=runs_of(layers_per_sample(runs)))
