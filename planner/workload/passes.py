"""What transformer layers share: norms, residual additions, dropout, products that are not split.

Every pass counts what it reads and writes, in bytes of the local shard; e is the width of an element.
"""

from enum import StrEnum
from typing import Final

from planner.units import Bytes
from planner.workload.layers import Cut
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Saved, SavedTensor

MASK_BYTES: Final = 1
"""A dropout mask keeps one byte per element."""


class Norm(StrEnum):
    """The normalisation: layer norm has a scale and a bias, RMS norm a scale.

    A scaled layer norm lacks the bias, a plain one both.
    """

    LAYER = "layer"
    SCALED_LAYER = "scaled_layer"
    PLAIN_LAYER = "plain_layer"
    RMS = "rms"

    @property
    def parameters_per_channel(self) -> int:
        """Scale, and bias, where there is one."""
        return {Norm.LAYER: 2, Norm.PLAIN_LAYER: 0}.get(self, 1)

    @property
    def kernel(self) -> str:
        """The measured kernel that it resembles."""
        return "rms_norm" if self is Norm.RMS else "layer_norm"


def norm_pass(
    name: str,
    norm: Norm,
    *,
    hidden: int,
    cut: Cut,
    made_by: Module | None,
    saves: bool = True,
    module: Module = Module.NORM,
) -> MemoryPass:
    """Return a norm: forward reads x and writes y, backward reads dy and x and writes dx.

    It ``saves`` its input, which ``made_by`` made, unless something before it did; the statistics
    (two numbers per token) are left out.
    """
    elements = cut.sharded_tokens * hidden
    width = cut.element_bytes * elements
    own = (SavedTensor(name=f"{name}_input", size_bytes=width, made_by=made_by),) if saves else ()
    upcast = upcast_tensors(name, norm, elements=elements, cut=cut, made_by=module)
    return MemoryPass(
        name=name,
        module=module,
        kind=norm.kernel,
        forward_bytes=2 * width,
        backward_bytes=3 * width,
        saved=(*own, *upcast),
    )


def upcast_tensors(name: str, norm: Norm, *, elements: int, cut: Cut, made_by: Module) -> Saved:
    """Return what an RMS norm in FP32 keeps beside its input, where the framework runs it so."""
    size_bytes = cut.keeping.norm_bytes(cut.element_bytes) * elements if norm is Norm.RMS else 0
    return (SavedTensor(name=f"{name}_upcast", size_bytes=size_bytes, made_by=made_by),) if size_bytes else ()


def residual_pass(name: str, *, hidden: int, cut: Cut, dropout: float, has_bias: bool) -> MemoryPass:
    """Return bias, dropout and residual addition in one pass.

    Forward reads the branch and the residual and writes the sum (3 e) and the mask. Backward adds
    the gradients of branch and residual where they meet (3 e), reads the gradient and the mask and
    writes the branch's gradient (2 e and the mask), and reads that once more to sum a bias gradient.
    """
    elements = cut.sharded_tokens * hidden
    mask = dropout_mask(name, elements=elements, dropout=dropout, module=Module.RESIDUAL)
    mask_bytes = sum(tensor.size_bytes for tensor in mask)
    element_reads = 3 + (2 if mask else 0) + (1 if has_bias else 0)
    return MemoryPass(
        name=name,
        module=Module.RESIDUAL,
        kind="bias_dropout_add" if mask else "add",
        forward_bytes=3 * cut.element_bytes * elements + mask_bytes,
        backward_bytes=element_reads * cut.element_bytes * elements + mask_bytes,
        saved=mask,
    )


def gate_tensors(name: str, *, size_bytes: Bytes, gated: bool, cut: Cut, made_by: Module) -> Saved:
    """Return the activation of a gate, kept for the product with the other half where that is not fused."""
    if not (gated and cut.keeping.activation_outputs):
        return ()
    return (SavedTensor(name=f"{name}_gate", size_bytes=size_bytes, made_by=made_by),)


def dropout_mask(name: str, *, elements: int, dropout: float, module: Module) -> tuple[SavedTensor, ...]:
    """Return the saved mask of a dropout, or nothing where the probability is zero."""
    if dropout == 0:
        return ()
    return (SavedTensor(name=f"{name}_mask", size_bytes=MASK_BYTES * elements, made_by=module),)


def replicated_product(
    name: str, module: Module, *, columns: int, inner: int, cut: Cut, made_by: Module | None
) -> MatrixProduct:
    """Return a product whose weight every device holds whole, over the device's shard of the tokens.

    It saves its input, which ``made_by`` made.
    """
    size_bytes = cut.element_bytes * cut.sharded_tokens * inner
    return MatrixProduct(
        name=name,
        module=module,
        rows=cut.sharded_tokens,
        columns=columns,
        inner=inner,
        saved=(SavedTensor(name=f"{name}_input", size_bytes=size_bytes, made_by=made_by),),
    )
