"""What mixers along a sequence share that are no attention: convolution, chunks, exchanges.

Such a mixer keeps a state from token to token. Training kernels work through chunks of the sequence with
matrix products and pass the state between them. With context parallel a rank takes some heads of the
whole sequence for the while (Megatron-Core's way for Mamba), so that its share of the work stays the same.
"""

from math import ceil

from planner.units import Bytes
from planner.workload.layers import Cut
from planner.workload.operators import (
    Collective,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Module,
    Phase,
    SavedTensor,
)

MIXER = Module.MIXER


def local_bytes(channels: int, cut: Cut) -> Bytes:
    """Return the bytes of so many channels of a device's tokens."""
    return cut.element_bytes * cut.local_tokens * channels


def num_chunks(chunk: int, cut: Cut) -> int:
    """Return the chunks that a device works through per head, all sequences together."""
    return ceil(cut.local_tokens / chunk)


def saved(name: str, size_bytes: Bytes) -> SavedTensor:
    """Return a tensor that the mixer makes and saves."""
    return SavedTensor(name=name, size_bytes=size_bytes, made_by=MIXER)


def convolution_pass(channels: int, cut: Cut) -> MemoryPass:
    """Return a short depth-wise convolution and its activation: it saves its input."""
    width = local_bytes(channels, cut)
    return MemoryPass(
        name="convolution",
        module=MIXER,
        kind="convolution",
        forward_bytes=2 * width,
        backward_bytes=3 * width,
        saved=(saved("convolution_input", width),),
    )


def chunk_product(name: str, *, rows: int, columns: int, inner: int, count: int) -> MatrixProduct:
    """Return products within chunks; the fused kernels save none of their operands."""
    return MatrixProduct(
        name=name, module=MIXER, rows=rows, columns=columns, inner=inner, count=count, has_weights=False
    )


def gated_norm_pass(channels: int, cut: Cut) -> MemoryPass:
    """Return the norm of a mixer's output, times its gate: it saves both."""
    width = local_bytes(channels, cut)
    return MemoryPass(
        name="gated_norm",
        module=MIXER,
        kind="rms_norm",
        forward_bytes=3 * width,
        backward_bytes=5 * width,
        saved=(saved("mixer_output", width), saved("mixer_gate", width)),
    )


def sequence_exchange(name: str, channels: int, cut: Cut) -> tuple[CollectivePass, ...]:
    """Return what turns a part of the sequence into a part of the heads, or back, and its mirror."""
    if cut.context_parallel == 1:
        return ()
    return tuple(
        CollectivePass(
            name=f"{name}{suffix}",
            module=MIXER,
            operation=Collective.ALL_TO_ALL,
            payload_bytes=local_bytes(channels, cut),
            axis="context_parallel",
            phase=phase,
        )
        for phase, suffix in ((Phase.FORWARD, ""), (Phase.BACKWARD, "_gradient"))
    )


def out_product(channels: int, *, hidden: int, cut: Cut) -> MatrixProduct:
    """Return the product that leaves a mixer."""
    return MatrixProduct(
        name="mixer_out",
        module=MIXER,
        rows=cut.local_tokens,
        columns=hidden,
        inner=channels,
        saved=(saved("mixer_out_input", local_bytes(channels, cut)),),
    )
