"""A Hugging Face config.json as a workload.

A missing key means the default of the family's config class in transformers (5.24), as loading the
file with the library would; null means what the class makes of null.
"""

from collections.abc import Mapping
from typing import Final

from planner.errors import InvalidRequest, UnknownName
from planner.names import nearest_names
from planner.workload.config_keys import ConfigKeys
from planner.workload.families.alibi import (
    BLOOM_OTHER_NAMES,
    FALCON_OTHER_NAMES,
    MPT_OTHER_NAMES,
    read_bloom,
    read_falcon,
    read_mpt,
)
from planner.workload.families.decoder_only import ReadFamily
from planner.workload.families.deepseek import (
    DEEPSEEK_OTHER_NAMES,
    DEEPSEEK_V2_OTHER_NAMES,
    read_deepseek_v2,
    read_deepseek_v3,
    read_glm4_moe,
)
from planner.workload.families.gemma import read_gemma, read_gemma2, read_gemma3_text
from planner.workload.families.gpt2 import GPT2_OTHER_NAMES, read_gpt2
from planner.workload.families.gpt_neox import GPTJ_OTHER_NAMES, read_gpt_neox, read_gptj
from planner.workload.families.hybrid import (
    JAMBA_OTHER_NAMES,
    NEMOTRON_H_OTHER_NAMES,
    read_jamba,
    read_nemotron_h,
    read_qwen3_next,
)
from planner.workload.families.llama import (
    read_llama,
    read_mistral,
    read_nemotron,
    read_phi3,
    read_qwen2,
    read_qwen3,
    read_starcoder2,
)
from planner.workload.families.mamba import read_mamba, read_mamba2
from planner.workload.families.mixture import (
    EXPERTS_OTHER_NAMES,
    read_gpt_oss,
    read_llama4_text,
    read_mixtral,
    read_qwen2_moe,
    read_qwen3_moe,
)
from planner.workload.families.opt import read_opt
from planner.workload.layers import Workload
from planner.workload.sizes import shown

FAMILIES: Final[Mapping[str, ReadFamily]] = {
    "bloom": read_bloom,
    "deepseek_v2": read_deepseek_v2,
    "deepseek_v3": read_deepseek_v3,
    "falcon": read_falcon,
    "gemma": read_gemma,
    "gemma2": read_gemma2,
    "gemma3_text": read_gemma3_text,
    "glm4_moe": read_glm4_moe,
    "gpt2": read_gpt2,
    "gpt_neox": read_gpt_neox,
    "gpt_oss": read_gpt_oss,
    "gptj": read_gptj,
    "jamba": read_jamba,
    "llama": read_llama,
    "llama4_text": read_llama4_text,
    "mamba": read_mamba,
    "mamba2": read_mamba2,
    "mistral": read_mistral,
    "mixtral": read_mixtral,
    "mpt": read_mpt,
    "nemotron": read_nemotron,
    "nemotron_h": read_nemotron_h,
    "opt": read_opt,
    "phi3": read_phi3,
    "qwen2": read_qwen2,
    "qwen2_moe": read_qwen2_moe,
    "qwen3": read_qwen3,
    "qwen3_moe": read_qwen3_moe,
    "qwen3_next": read_qwen3_next,
    "starcoder2": read_starcoder2,
}
"""How to read a config, by its ``model_type``."""

OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "bloom": BLOOM_OTHER_NAMES,
    "deepseek_v2": DEEPSEEK_V2_OTHER_NAMES,
    "deepseek_v3": DEEPSEEK_OTHER_NAMES,
    "falcon": FALCON_OTHER_NAMES,
    "glm4_moe": DEEPSEEK_OTHER_NAMES,
    "gpt2": GPT2_OTHER_NAMES,
    "gpt_oss": EXPERTS_OTHER_NAMES,
    "gptj": GPTJ_OTHER_NAMES,
    "jamba": JAMBA_OTHER_NAMES,
    "mixtral": EXPERTS_OTHER_NAMES,
    "mpt": MPT_OTHER_NAMES,
    "nemotron_h": NEMOTRON_H_OTHER_NAMES,
    "qwen3_moe": EXPERTS_OTHER_NAMES,
}
"""Second spellings of keys, by family."""


def workload_from_config(
    config: Mapping[str, object], *, pointer: str = "/model/huggingface", name: str | None = None
) -> Workload:
    """Return the model that a config.json describes, with the keys that were not understood.

    Raises UnknownName for a ``model_type`` that nothing reads (nearest names given) and InvalidRequest
    for a value that a key cannot have, with the JSON pointer of the key under ``pointer``.
    """
    family = _family(config, pointer=f"{pointer}/model_type")
    keys = ConfigKeys(config, pointer=pointer, other_names=OTHER_NAMES.get(family))
    chain = FAMILIES[family](keys)
    return Workload(
        name=name or _own_name(config) or family,
        family=family,
        runs=chain.runs,
        default_sequence_length=chain.sequence_length,
        not_understood=keys.not_understood,
    )


def _family(config: Mapping[str, object], *, pointer: str) -> str:
    family = config.get("model_type")
    if family is None:
        raise InvalidRequest(
            "model_type is missing: it says what the other keys mean",
            pointer=pointer,
            nearest_legal=sorted(FAMILIES),
        )
    if not isinstance(family, str) or family not in FAMILIES:
        nearest = nearest_names(family, FAMILIES) if isinstance(family, str) else sorted(FAMILIES)
        raise UnknownName(f"model_type {shown(family)} is not known", pointer=pointer, nearest_legal=nearest)
    return family


def _own_name(config: Mapping[str, object]) -> str | None:
    name = config.get("_name_or_path")
    return name if isinstance(name, str) else None
