"""Every number of a training program's memory that is no arithmetic: what it means, its value, its ground.

``meshplan validate DIR --neutral`` prints what the error of the peaks in DIR becomes when each of them is
set neutral. What kernels keep for backward follows from their code and stands in `planner.workload.keeping`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Final

from planner.footprint import PLAIN, Footprint
from planner.parameters import BIGSCIENCE, GUESS, NANOTRON, SAILOR, Effect, nearest_of
from planner.units import GIBIBYTE

PER_PARAMETER: Final = "B per parameter"
FOOTPRINT_EFFECTS: Final[Mapping[str, Effect]] = MappingProxyType(
    {
        "upcast_gradient_bytes": Effect(
            unit=PER_PARAMETER, meaning="FP32 copies of a shard's gradients that are held in fewer bytes"
        ),
        "shard_copy_bytes": Effect(
            unit=PER_PARAMETER, meaning="FP32 gradients of a shard, reduced into a tensor of their own"
        ),
        "replica_bucket_bytes": Effect(
            unit=PER_PARAMETER, meaning="buckets that average gradients over replicas without sharding"
        ),
        "buffer_bytes": Effect(unit="B", meaning="flat buffers of a fixed size, allocated once and kept"),
        "context_bytes": Effect(unit="B", meaning="context of the device with the libraries' workspaces"),
        "queued_layers": Effect(
            unit="layers",
            meaning="launched ahead of the device: whole outputs that collectives have yet to scatter",
        ),
        "further_groups": Effect(
            unit="communicators", meaning="process groups beside those of the mesh's axes"
        ),
        "fragmentation_fraction": Effect(
            unit="share", meaning="reserved over allocated, less one, of tensors that come and go"
        ),
        "pipelined_fragmentation_fraction": Effect(
            unit="share", meaning="the same on top of it in a pipeline, which frees blocks out of order"
        ),
        "host_factor": Effect(
            unit="bytes over those of the states", meaning="what states take on the host, buffers and all"
        ),
        "state_error": Effect(
            unit="share", meaning="standard deviation of parameters, gradients and optimizer states"
        ),
        "transient_error": Effect(unit="share", meaning="standard deviation of everything else"),
    }
)
"""The effects by the name of their field in `Footprint`; its default is neutral."""
WIDTHS: Final = frozenset({"state_error", "transient_error"})
"""Effects that change intervals and no prediction."""

DEEPSPEED: Final = "DeepSpeed's page on memory requirements: 16 bytes per parameter of a shard"
HOSTS: Final = "775 GB on the host of 33 billion parameters, of 750 to 800 (deepspeedai/DeepSpeed issue 3448)"
REPORTS: Final = "reports of devices that ran out of memory with 2 to 6 GiB reserved and unallocated"


@dataclass(frozen=True, kw_only=True, slots=True)
class FootprintParameter:
    """One effect's value in one program (or framework, for all programs on it)."""

    program: str
    effect: str
    value: float
    rests_on: str

    @property
    def is_fitted(self) -> bool:
        """Whether runs or reports showed it."""
        return self.rests_on != GUESS

    @property
    def neutral(self) -> float:
        """The value without the effect."""
        return NEUTRAL_FOOTPRINT[self.effect]


NEUTRAL_FOOTPRINT: Final[Mapping[str, float]] = MappingProxyType(
    {field.name: float(field.default) for field in fields(Footprint)}  # type: ignore[arg-type]
)


def _of(program: str, rests_on: str, **values: float) -> Iterator[FootprintParameter]:
    """Yield the parameters that rest on one ground."""
    for effect, value in values.items():
        yield FootprintParameter(program=program, effect=effect, value=value, rests_on=rests_on)


DEEPSPEED_BUFFER_BYTES: Final = 4 * 2 * 500_000_000
"""Two buckets in turn for reductions and two for gathers, of two-byte elements.

The default of reduce_bucket_size and of allgather_bucket_size is 5e8 elements.
"""
FOOTPRINTS: Final[tuple[FootprintParameter, ...]] = (
    # Nobody publishes the memory of its runs, and recipes differ in more than they say.
    *_of("megatron-bridge", GUESS, state_error=0.02, transient_error=0.08),
    *_of("megatron-deepspeed", DEEPSPEED, upcast_gradient_bytes=4),
    *_of("megatron-deepspeed", SAILOR, buffer_bytes=DEEPSPEED_BUFFER_BYTES),
    # Precision and layers per stage of some of its runs are unknown.
    *_of("megatron-deepspeed", BIGSCIENCE, state_error=0.035, transient_error=0.12),
    # Before CUDA 11.7 a context loaded all kernels at once. The engine has groups of its own: world, model,
    # a pair with either neighbour.
    *_of(
        "bigscience",
        BIGSCIENCE,
        context_bytes=1.7 * GIBIBYTE,
        further_groups=4,
        fragmentation_fraction=0.25,
    ),
    *_of("pytorch", REPORTS, fragmentation_fraction=0.06),
    # Eager or compiled, and RMS norms fused or not: releases differ.
    *_of("pytorch", GUESS, state_error=0.02, transient_error=0.1),
    *_of("deepspeed", DEEPSPEED, upcast_gradient_bytes=4),
    *_of("deepspeed", SAILOR, buffer_bytes=DEEPSPEED_BUFFER_BYTES),
    *_of("deepspeed", GUESS, state_error=0.05, transient_error=0.15),
    *_of("deepspeed", HOSTS, host_factor=1.19),
    # CUDA queues 1,024 launches, those of some 26 eager layers of 40. Peaks are what its log prints as
    # reserved, so fragments count: fitted so that one run in forty needs 5 % more than predicted. The buffers
    # are workspaces of products (PyTorch's cuBLAS: 32 MiB on Hopper for each thread and stream) and blocks of
    # the allocator that are begun: runs of 1B on 32 ranks reserve as much whatever their batch.
    *_of(
        "nanotron",
        NANOTRON,
        queued_layers=26,
        shard_copy_bytes=4,
        replica_bucket_bytes=2,
        buffer_bytes=0.25 * GIBIBYTE,
        fragmentation_fraction=0.10,
        pipelined_fragmentation_fraction=0.16,
        state_error=0.02,
        transient_error=0.105,
    ),
)
"""All of them; a program's own come before those of what it is based on."""


def footprint_parameters_of(
    program: str, parameters: tuple[FootprintParameter, ...] = FOOTPRINTS
) -> Mapping[str, FootprintParameter]:
    """Return the parameters that hold for a program, by effect."""
    return nearest_of(program, parameters)


def footprint_of(program: str, parameters: tuple[FootprintParameter, ...] = FOOTPRINTS) -> Footprint:
    """Return the footprint of a program or framework by its name."""
    found = footprint_parameters_of(program, parameters)
    return replace(PLAIN, **{effect: parameter.value for effect, parameter in found.items()})
