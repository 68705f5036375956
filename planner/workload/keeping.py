"""What a framework's kernels keep for backward, where others keep more or less of the same operator."""

from dataclasses import dataclass, replace
from typing import Final

FP32_BYTES: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """What is kept beside the least that backward needs; the defaults are those of fused kernels.

    A framework that runs a pass as several operations keeps what each of them saves.
    """

    upcast_norms: bool = False
    """Whether an RMS norm runs operation by operation in FP32.

    PyTorch's own then keeps the FP32 input and the FP32 normalised input (its weight's gradient needs it).
    """
    trains_norms: bool = True
    joins_norms: bool = False
    """Whether the norm before a branch runs inside the kernel of the branch's first product.

    It then is no module of its own. Norms before latent attention and before experts, whose inputs go to
    several products, stand alone all the same.
    """
    activation_outputs: bool = False
    """Whether a gated MLP keeps the activation of its gate, which the product with the other half needs."""
    upcast_softmax: bool = False
    """Whether unfused attention keeps its probabilities in FP32 as well."""
    logit_bytes: int = 0
    """Bytes per logit that live only while the loss runs, beside the softmax that it keeps.

    0 where one kernel computes the loss in place: then the logits' gradient is all.
    """
    kept_logit_bytes: int = FP32_BYTES
    """Bytes per logit that stay until backward: the FP32 softmax, or the logits themselves.

    A kernel that computes the loss from low-precision logits (flash-attn's) keeps those alone.
    """
    product_input_bytes: float | None = None
    """Bytes per element of an input that a product alone keeps; None for those of an activation.

    Products of narrower operands keep them as they read them.
    """

    def compiled(self) -> "Keeping":
        """Return what is kept where a compiler fuses the passes of a layer: the loss stays as it is."""
        return replace(self, upcast_norms=False, activation_outputs=False, upcast_softmax=False)

    def norm_bytes(self, element_bytes: int) -> int:
        """Return the bytes per element that an RMS norm keeps beside its input."""
        if not self.upcast_norms:
            return 0
        return (FP32_BYTES - element_bytes) + (FP32_BYTES if self.trains_norms else 0)

    def probability_bytes(self, element_bytes: int) -> int:
        """Return the bytes per pair of query and key that an unfused softmax keeps."""
        return element_bytes + (FP32_BYTES if self.upcast_softmax and element_bytes < FP32_BYTES else 0)

    def input_bytes(self, element_bytes: int) -> float:
        """Return the bytes per element of an input that a product alone keeps."""
        return element_bytes if self.product_input_bytes is None else self.product_input_bytes


FUSED: Final = Keeping()
EAGER: Final = Keeping(upcast_norms=True, activation_outputs=True, upcast_softmax=True, logit_bytes=4 + 4)
"""PyTorch, operation by operation.

Backward of the cross entropy holds two FP32 gradients per logit beside the log-softmax: the likelihood's
and the softmax's.
"""
