"""The module that a text names: made on the meta device, so that it needs no memory."""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from profiler.tracing.errors import UntraceableModule

Factory = Callable[[], torch.nn.Module]


def factory_named(text: str) -> Factory:
    """Return what ``package.module:name`` or ``folder/file.py:name`` names: something that makes a module.

    Raises UntraceableModule where there is no such thing.
    """
    place, sign, name = text.rpartition(":")
    if not sign or not place or not name:
        raise UntraceableModule(f"{text!r} is not of the form package.module:factory or file.py:factory")
    found: Any = _imported(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise UntraceableModule(f"{place} has no {name}")
        found = getattr(found, part)
    if isinstance(found, torch.nn.Module):
        return lambda: found
    if not callable(found):
        raise UntraceableModule(f"{text} is no function, class or module, but a {type(found).__name__}")
    return found  # type: ignore[no-any-return]  # what it returns is checked


def made_on_meta(factory: Factory, *, dtype: torch.dtype) -> torch.nn.Module:
    """Return what a factory makes, without memory for its weights, in training mode.

    One that asks for values while it makes the module gets real memory first.
    """
    try:
        with torch.device("meta"):
            module = factory()
    except (NotImplementedError, RuntimeError):
        module = _made(factory)
    except Exception as error:
        raise UntraceableModule(f"the module cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(module, torch.nn.Module):
        raise UntraceableModule(f"the factory returned a {type(module).__name__}, not a torch.nn.Module")
    return module.to(device="meta", dtype=dtype).train()


def _made(factory: Factory) -> torch.nn.Module:
    try:
        return factory()
    except Exception as error:
        raise UntraceableModule(f"the module cannot be made: {type(error).__name__}: {error}") from error


def _imported(place: str) -> ModuleType:
    path = Path(place)
    try:
        return _from_file(path) if path.suffix == ".py" else import_module(place)
    except Exception as error:
        raise UntraceableModule(f"{place} cannot be imported: {type(error).__name__}: {error}") from error


def _from_file(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(str(path))
    loaded = module_from_spec(spec)
    # Dataclasses and pickles look a module up by its name.
    sys.modules.setdefault(path.stem, loaded)
    spec.loader.exec_module(loaded)
    return loaded
