"""The small transformers that are planned and run, as chains of layers."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from planner.job import Job, Precision
from planner.workload.chain import workload_from_layers
from planner.workload.layers import Workload


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder with as many samples and positions as a step has."""

    name: str
    width: int
    depth: int
    sequence_length: int
    global_batch_size: int
    vocabulary: int = 512
    heads: int = 4

    @cached_property
    def workload(self) -> Workload:
        """The chain of layers."""
        return workload_from_layers({"layers": self.layers()})

    def layers(self) -> list[dict[str, Any]]:
        """Return the chain as documents have it."""
        hidden = {"hidden": self.width}
        head_dim = self.width // self.heads
        block = {"ffn": 3 * self.width, "heads": self.heads, "kv_heads": self.heads, "head_dim": head_dim}
        return [
            {"kind": "embedding", "count": 1, "vocabulary": self.vocabulary, **hidden},
            {"kind": "decoder", "count": self.depth, **hidden, **block},
            {"kind": "norm", "count": 1, **hidden},
            {"kind": "head", "count": 1, "vocabulary": self.vocabulary, **hidden},
        ]

    def job(self) -> Job:
        """Return how it is trained: with torch's own parallelism, in single precision."""
        return Job(
            global_batch_size=self.global_batch_size,
            sequence_length=self.sequence_length,
            precision=Precision.FP32,
            framework="pytorch",
        )
