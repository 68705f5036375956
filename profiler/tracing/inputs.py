"""The inputs of one sample, as the command line spells them: ``3x224x224``, ``128:int64``, ``128xBx40``."""

from dataclasses import dataclass
from typing import Final

import torch

from profiler.tracing.errors import UntraceableModule

BATCH: Final = "B"
"""Stands where the batch does in a shape; first where it is not given."""

DTYPES: Final = {
    "fp32": torch.float32,
    "float32": torch.float32,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "fp16": torch.float16,
    "float16": torch.float16,
    "int64": torch.int64,
    "int32": torch.int32,
    "bool": torch.bool,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class InputShape:
    """The shape of one input: None stands for the batch. ``dtype`` None is that of the module."""

    sizes: tuple[int | None, ...]
    dtype: torch.dtype | None = None

    def tensor(self, batch: int, *, dtype: torch.dtype) -> torch.Tensor:
        """Return an input of so many samples, without values."""
        shape = [batch if size is None else size for size in self.sizes]
        return torch.empty(shape, dtype=self.dtype or dtype, device="meta")


def input_shape(text: str) -> InputShape:
    """Return the input that a text spells. Raises UntraceableModule for one that spells none."""
    shape, sign, dtype = text.partition(":")
    if sign and dtype not in DTYPES:
        raise UntraceableModule(f"input {text!r}: {dtype!r} is not one of {', '.join(DTYPES)}")
    words = [word for word in shape.split("x") if word]
    sizes = tuple(None if word == BATCH else _size(word, text) for word in words)
    if sizes.count(None) > 1:
        raise UntraceableModule(f"input {text!r} has more than one batch")
    return InputShape(sizes=sizes if None in sizes else (None, *sizes), dtype=DTYPES[dtype] if sign else None)


def _size(word: str, text: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise UntraceableModule(
            f"input {text!r}: {word!r} is no size; write 3x224x224, 128:int64 or 128xBx40"
        )
    return int(word)
