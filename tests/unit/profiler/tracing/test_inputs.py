import pytest
import torch

from profiler.tracing.errors import UntraceableModule
from profiler.tracing.inputs import input_shape


@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        ("3x224x224", (7, 3, 224, 224), torch.bfloat16),
        ("128:int64", (7, 128), torch.int64),
        ("128xBx40", (128, 7, 40), torch.bfloat16),
        ("Bx5:fp32", (7, 5), torch.float32),
        ("B", (7,), torch.bfloat16),
    ],
)
def test_an_input_has_the_shape_and_dtype_that_is_spelled(
    text: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    tensor = input_shape(text).tensor(7, dtype=torch.bfloat16)
    assert (tuple(tensor.shape), tensor.dtype, tensor.device.type) == (shape, dtype, "meta")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3x0", "'0' is no size"),
        ("3xWx4", "'W' is no size"),
        ("3x-2", "'-2' is no size"),
        ("BxB", "more than one batch"),
        ("4:int7", "'int7' is not one of fp32"),
        ("4:", "'' is not one of"),
    ],
)
def test_what_is_no_shape_is_refused(text: str, message: str) -> None:
    with pytest.raises(UntraceableModule, match=message):
        input_shape(text)
