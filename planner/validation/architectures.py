"""Models whose layers no column describes: a preset's config, with the sizes that a row gives."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from planner.validation.rows import Reader
from planner.workload.huggingface import workload_from_config
from planner.workload.layers import Workload
from planner.workload.presets import preset_config


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """A preset whose config describes a model, but for the keys in ``other``."""

    preset: str
    other: Mapping[str, object] = field(default_factory=dict)


NEMOTRON_3_NANO: Final[Mapping[str, object]] = {
    "hybrid_override_pattern": "MEMEM*E" + 3 * "MEMEM*E" + "MEMEM*EMEMEMEM*EMEMEMEME",
    "hidden_size": 2688,
    "num_key_value_heads": 2,
    "mamba_num_heads": 64,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
}
"""What its config.json has other than that of Nemotron-H-8B."""
ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    # --mtp-num-layers is off unless given, and columns count decoder layers alone.
    "deepseekv3": Architecture(preset="deepseek-v3", other={"num_nextn_predict_layers": 0}),
    "deepseekv2": Architecture(preset="deepseek-v2"),
    "deepseekv2lite": Architecture(preset="deepseek-v2-lite"),
    "gptoss": Architecture(preset="gpt-oss-120b"),
    # xAI's release: gated experts, two of eight, in every layer.
    "grok1": Architecture(preset="mixtral-8x7b"),
    # Its config.json: DeepSeek-V3's keys, one dense layer, no groups of experts, no further prediction.
    "kimik2": Architecture(
        preset="deepseek-v3",
        other={"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "num_nextn_predict_layers": 0},
    ),
    "llama4maverick": Architecture(preset="llama-4-maverick"),
    "llama4scout": Architecture(preset="llama-4-scout"),
    "mixtral": Architecture(preset="mixtral-8x7b"),
    "nemotron3nano": Architecture(preset="nemotron-h-8b", other=NEMOTRON_3_NANO),
    # Its page: the layers of Nemotron 3 Nano, and one further prediction.
    "nemotron35lightning": Architecture(
        preset="nemotron-h-8b", other={**NEMOTRON_3_NANO, "num_nextn_predict_layers": 1}
    ),
    "nemotronh8b": Architecture(preset="nemotron-h-8b"),
    # Its config.json: the blocks of the 8B model in front and at the end, and nine instead of three between.
    "nemotronh56b": Architecture(
        preset="nemotron-h-8b",
        other={
            "hybrid_override_pattern": "M-M-M-M*-" + 9 * "M-M-M-M-M*-" + "M-M-M-M-M-",
            "mamba_num_heads": 256,
            "ssm_state_size": 256,
        },
    ),
    "qwen3235ba22b": Architecture(preset="qwen3-235b-a22b"),
    "qwen330ba3b": Architecture(preset="qwen3-30b-a3b"),
}
"""Presets by how a model's name begins, in small letters and digits; the longest beginning wins."""
TEXT: Final = "text_config"
EXPERT_KEYS: Final = ("n_routed_experts", "num_local_experts", "num_experts")
EXPERT_WIDTH_KEYS: Final = ("moe_intermediate_size", "intermediate_size")
DENSE_KEY: Final = "first_k_dense_replace"
DENSE_LAYERS: Final = re.compile(r"\bdense_layers=(\d+)")
"""How a row's notes say how many layers in front have no experts, where they were cut to fewer."""


def architecture_of(model: str) -> Architecture | None:
    """Return the architecture that a model's name begins with; None for a name that says none."""
    name = re.sub(r"[^a-z0-9]", "", model.lower())
    known = [prefix for prefix in ARCHITECTURES if name.startswith(prefix)]
    return ARCHITECTURES[max(known, key=len)] if known else None


def described_workload(reader: Reader, architecture: Architecture) -> Workload:
    """Return a preset with a row's sizes in place of its own; what the row leaves unsaid is the preset's."""
    config = {**_language_config(architecture.preset), **architecture.other}
    width = next(key for key in EXPERT_WIDTH_KEYS if key in config)
    columns = {
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "vocab": "vocab_size",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "ffn_hidden": width,
    }
    if experts := next((key for key in EXPERT_KEYS if key in config), None):
        columns |= {"experts": experts, "top_k": "num_experts_per_tok"}
    sizes = {key: reader.whole(column, default=config[key]) for column, key in columns.items()}
    said = DENSE_LAYERS.search(reader.row.text("notes"))
    if said and DENSE_KEY in config:
        sizes[DENSE_KEY] = int(said.group(1))
    return workload_from_config({**config, **sizes}, name=reader.row.text("model"))


@cache
def _language_config(preset: str) -> Mapping[str, Any]:
    """Return the config of a preset's language model."""
    config = preset_config(preset)
    return json.loads(json.dumps(config.get(TEXT, config)))  # type: ignore[no-any-return]
