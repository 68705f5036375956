"""Kernels of known devices, and operators to ask them for."""

from functools import cache

from planner.cost.compute import KernelCosts
from planner.devices import device_by_name
from planner.job import Precision
from planner.profile import builtin_profiles
from planner.workload.operators import AttentionCore, MatrixProduct, MemoryPass, Module, Phase

PRODUCT_PHASES = [Phase.FORWARD, Phase.INPUT_GRADIENT, Phase.WEIGHT_GRADIENT]


@cache
def costs(device: str, precision: Precision = Precision.BF16) -> KernelCosts:
    return KernelCosts(device_by_name(device), builtin_profiles(), precision)


def product(
    rows: int, columns: int, inner: int, *, count: int = 1, has_weights: bool = True
) -> MatrixProduct:
    return MatrixProduct(
        name="product",
        module=Module.MLP,
        rows=rows,
        columns=columns,
        inner=inner,
        count=count,
        has_weights=has_weights,
    )


def core(
    *, batch: int = 1, heads: int = 16, length: int = 4096, head_dim: int = 128, causal: bool = True
) -> AttentionCore:
    return AttentionCore(
        name="core",
        module=Module.CORE_ATTENTION,
        batch=batch,
        query_length=length,
        key_length=length,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
        causal=causal,
    )


def tflops(kernels: KernelCosts, op: MatrixProduct, phase: Phase = Phase.FORWARD) -> float:
    return op.forward_flops / kernels.matrix_product(op, phase=phase).seconds / 1e12


def memory_pass(moved: float, *, kind: str = "rms_norm") -> MemoryPass:
    return MemoryPass(
        name="pass", module=Module.NORM, kind=kind, forward_bytes=moved, backward_bytes=1.5 * moved
    )
