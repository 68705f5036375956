"""The well-known models, as config files named for them; the facts alone, as published.

GPT-3 and the Megatron models have the shape of GPT-2; their sizes and their vocabulary of 51,200 are
those of Korthikanti et al. (2022), table 3. ``mistral-7b`` is version 0.2, which has no window.
Where a model is known for its language alone, its head is that of a language model (BERT's masked one).
What no config.json describes is a chain of layers: ``dlrm-criteo-1tb`` is the reference model of MLPerf
Training v0.7 (facebookresearch/dlrm, ``run_and_time.sh``), whose tables have 40 million rows at most.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from typing import Any, Final

from planner.errors import UnknownName
from planner.names import nearest_names
from planner.workload.chain import workload_from_layers
from planner.workload.huggingface import workload_from_config
from planner.workload.layers import Workload
from planner.workload.sizes import shown

ALIASES: Final = {
    "gpt-2": "gpt-2-124m",
    "gpt-2-small": "gpt-2-124m",
    "gpt-2-medium": "gpt-2-355m",
    "gpt-2-large": "gpt-2-774m",
    "gpt-2-xl": "gpt-2-1.5b",
    "mistral-7b-v0.2": "mistral-7b",
    "bert-base-uncased": "bert-base",
    "bert-large-uncased": "bert-large",
    "deepseek-r1": "deepseek-v3",
    "dlrm": "dlrm-criteo-1tb",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "llama-4-scout-17b-16e": "llama-4-scout",
}
"""Other names of the same models."""

SUFFIX: Final = ".json"


def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, sorted, without their aliases."""
    files = (file.name for file in resources.files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX)))


def preset_config(name: str, *, pointer: str = "/model/preset") -> Mapping[str, Any]:
    """Return the config of a preset by its name or an alias; UnknownName gives the nearest names."""
    names = preset_names()
    canonical = ALIASES.get(name, name)
    if canonical not in names:
        raise UnknownName(
            f"no model is called {shown(name)}",
            pointer=pointer,
            nearest_legal=nearest_names(name, (*names, *ALIASES)),
        )
    text = (resources.files(__name__) / f"{canonical}{SUFFIX}").read_text(encoding="utf-8")
    config: Mapping[str, Any] = json.loads(text)
    return config


def preset_workload(name: str, *, pointer: str = "/model/preset") -> Workload:
    """Return a preset by its name or an alias; UnknownName gives the nearest names."""
    config, canonical = preset_config(name, pointer=pointer), ALIASES.get(name, name)
    return (
        _from_chain(config, name=canonical)
        if "layers" in config
        else workload_from_config(config, name=canonical)
    )


def _from_chain(document: Mapping[str, object], *, name: str) -> Workload:
    chain = workload_from_layers({"layers": document["layers"]})
    return replace(chain, name=name, family=str(document["family"]))
