"""The families of decoder-only language models: how to read each, by its ``model_type``."""

from collections.abc import Mapping
from typing import Final

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

TEXT_FAMILIES: Final[Mapping[str, ReadFamily]] = {
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
"""How to read the config of a language model."""

TEXT_OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
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
