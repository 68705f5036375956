from pathlib import Path

import pytest
import torch
from torch import nn

from profiler.examples.models import Mixer, mixer
from profiler.tracing.errors import UntraceableModule
from profiler.tracing.modules import factory_named, made_on_meta

FILE = """
from torch import nn

made = nn.Linear(2, 3)
number = 7

class Net:
    class Inner(nn.Linear):
        def __init__(self):
            super().__init__(4, 5)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "networks.py"
    path.write_text(FILE)
    return path


def test_a_factory_is_found_in_a_package() -> None:
    assert factory_named("profiler.examples.models:mixer") is mixer


def test_a_module_or_a_class_within_a_class_is_found_in_a_file(file: Path) -> None:
    made, inner = factory_named(f"{file}:made")(), factory_named(f"{file}:Net.Inner")()
    assert isinstance(made, nn.Linear)
    assert isinstance(inner, nn.Linear)
    assert (made.out_features, inner.out_features) == (3, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiler.examples.models", "not of the form"),
        (":mixer", "not of the form"),
        ("profiler.examples.models:mixr", "has no mixr"),
        ("profiler.examples.nowhere:mixer", "cannot be imported: ModuleNotFoundError"),
        ("nowhere.py:mixer", "cannot be imported: FileNotFoundError"),
    ],
)
def test_what_is_not_there_is_refused(text: str, message: str) -> None:
    with pytest.raises(UntraceableModule, match=message):
        factory_named(text)


def test_what_makes_no_module_is_refused(file: Path) -> None:
    with pytest.raises(UntraceableModule, match="no function, class or module, but a int"):
        factory_named(f"{file}:number")
    with pytest.raises(UntraceableModule, match=r"returned a list, not a torch\.nn\.Module"):
        made_on_meta(list, dtype=torch.float32)  # type: ignore[arg-type]  # what is refused


def test_a_module_is_made_without_memory_in_its_dtype_for_training() -> None:
    module = made_on_meta(lambda: mixer().eval(), dtype=torch.bfloat16)
    assert isinstance(module, Mixer)
    assert module.training
    assert {(weight.device.type, weight.dtype) for weight in module.parameters()} == {
        ("meta", torch.bfloat16)
    }


class Rates(nn.Module):
    """Reads values of a tensor while it is made, as stochastic depth does."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = [rate.item() for rate in torch.linspace(0, 1, 3)]
        self.map = nn.Linear(2, 2)


def test_a_module_that_needs_values_while_it_is_made_gets_them() -> None:
    module = made_on_meta(Rates, dtype=torch.float32)
    assert module.rates == [0, 0.5, 1]
    assert next(module.parameters()).device.type == "meta"


def failing(*, error: Exception) -> nn.Module:
    raise error


@pytest.mark.parametrize("error", [KeyError("depth"), RuntimeError("depth")])
def test_a_module_that_cannot_be_made_says_why(error: Exception) -> None:
    with pytest.raises(UntraceableModule, match=f"cannot be made: {type(error).__name__}: .*depth"):
        made_on_meta(lambda: failing(error=error), dtype=torch.float32)
