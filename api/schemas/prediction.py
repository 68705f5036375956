"""What a plan would do, on the wire: time, rates, memory, and how sure we are."""

import math
from typing import Self

from pydantic import Field

from api.schemas.document import EXPERIMENTAL, OutputDocument
from planner.plan import (
    HostMemory,
    MemoryBreakdown,
    Prediction,
    ProvenanceShares,
    StageMemory,
    TimeBreakdown,
)


def finite(value: float) -> float | None:
    """Return a number that JSON has, None in place of an infinity or NaN."""
    return value if math.isfinite(value) else None


class TimeBreakdownDocument(OutputDocument):
    """Exposed seconds on the critical path, by cause; they add up to the step time."""

    compute: float
    recompute: float
    tensor_parallel: float
    context_parallel: float
    expert_parallel: float
    pipeline: float
    data_parallel: float
    offload: float
    bubble: float
    optimizer: float
    overhead: float

    @classmethod
    def from_breakdown(cls, breakdown: TimeBreakdown) -> Self:
        """Return the document of a breakdown."""
        return cls(**{cause: getattr(breakdown, cause) for cause in cls.model_fields})


class MemoryBreakdownDocument(OutputDocument):
    """Bytes of one device at its worst moment, by cause; they add up to the peak."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    framework: float

    @classmethod
    def from_breakdown(cls, breakdown: MemoryBreakdown) -> Self:
        """Return the document of a breakdown."""
        return cls(**{cause: getattr(breakdown, cause) for cause in cls.model_fields})


class StageMemoryDocument(OutputDocument):
    """Memory of the devices of one stage."""

    stage: int
    node_group: str
    peak_bytes: float = Field(description="Allocated, fragmentation and framework: what must fit.")
    peak_allocated_bytes: float = Field(description="Live tensors.")
    capacity_bytes: float = Field(description="What the driver reports.")
    fits: bool
    interval_bytes: tuple[float, float] = Field(description="80 % interval.")
    breakdown_bytes: MemoryBreakdownDocument

    @classmethod
    def from_memory(cls, memory: StageMemory) -> Self:
        """Return the document of a stage's memory."""
        return cls(
            stage=memory.stage,
            node_group=memory.node_group,
            peak_bytes=memory.peak_bytes,
            peak_allocated_bytes=memory.peak_allocated_bytes,
            capacity_bytes=memory.capacity_bytes,
            fits=memory.fits,
            interval_bytes=memory.interval_bytes,
            breakdown_bytes=MemoryBreakdownDocument.from_breakdown(memory.breakdown_bytes),
        )


class HostMemoryDocument(OutputDocument):
    """Host memory of one node of a group."""

    node_group: str
    memory_bytes_per_node: float
    capacity_bytes: float
    nvme_bytes_per_node: float
    fits: bool

    @classmethod
    def from_host(cls, host: HostMemory) -> Self:
        """Return the document of a host's memory."""
        return cls(
            node_group=host.node_group,
            memory_bytes_per_node=host.memory_bytes,
            capacity_bytes=host.capacity_bytes,
            nvme_bytes_per_node=host.nvme_bytes_per_node,
            fits=host.fits,
        )


class ProvenanceDocument(OutputDocument):
    """Shares of the time by where its figures come from."""

    measured: float
    interpolated: float
    datasheet: float

    @classmethod
    def from_shares(cls, shares: ProvenanceShares) -> Self:
        """Return the document of the shares."""
        return cls(measured=shares.measured, interpolated=shares.interpolated, datasheet=shares.datasheet)


class PredictionDocument(OutputDocument):
    """What a plan would do."""

    step_time_seconds: float
    step_time_interval_seconds: tuple[float, float] = Field(description="80 % interval.")
    samples_per_second: float
    tokens_per_second: float | None
    tokens_per_second_per_device: float | None
    model_flops_per_second_per_device: float
    mfu: float
    breakdown_seconds: TimeBreakdownDocument
    memory: tuple[StageMemoryDocument, ...]
    host: tuple[HostMemoryDocument, ...] = Field(json_schema_extra=EXPERIMENTAL)
    cost_per_step: float | None = Field(json_schema_extra=EXPERIMENTAL)
    energy_joules_per_step: float | None = Field(json_schema_extra=EXPERIMENTAL)
    fits: bool
    provenance: ProvenanceDocument

    @classmethod
    def from_prediction(cls, prediction: Prediction) -> Self:
        """Return the document of a prediction."""
        return cls(
            step_time_seconds=prediction.step_time_seconds,
            step_time_interval_seconds=prediction.step_time_interval_seconds,
            samples_per_second=prediction.samples_per_second,
            tokens_per_second=prediction.tokens_per_second,
            tokens_per_second_per_device=prediction.tokens_per_second_per_device,
            model_flops_per_second_per_device=prediction.model_flops_per_second_per_device,
            mfu=prediction.mfu,
            breakdown_seconds=TimeBreakdownDocument.from_breakdown(prediction.breakdown_seconds),
            memory=tuple(map(StageMemoryDocument.from_memory, prediction.memory)),
            host=tuple(map(HostMemoryDocument.from_host, prediction.host)),
            cost_per_step=prediction.cost_per_step,
            energy_joules_per_step=prediction.energy_joules_per_step,
            fits=prediction.fits,
            provenance=ProvenanceDocument.from_shares(prediction.provenance),
        )
