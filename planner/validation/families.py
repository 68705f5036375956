"""What a model's name says that its sizes do not: norms, gates, biases, positions, dropout, ties."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.workload.passes import Norm


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """The shape of a family's layers beside their sizes; the defaults are those of llama.

    ``biases`` are those of all products, ``qkv_bias`` that of the first alone. ``undescribed`` says
    which of its parts no column of a row describes, if any.
    """

    norm: Norm = Norm.RMS
    gated: bool = True
    rotary: bool = True
    learned_positions: bool = False
    biases: bool = False
    qkv_bias: bool = False
    tied: bool = False
    dropout: float = 0.0
    embedding_norm: bool = False
    undescribed: str | None = None


LLAMA: Final = Family()
GPT: Final = Family(
    norm=Norm.LAYER,
    gated=False,
    rotary=False,
    learned_positions=True,
    biases=True,
    tied=True,
    dropout=0.1,
)
"""GPT-2 and GPT-3 as Megatron trains them, with its own defaults for both dropouts."""
HYBRID: Final = Family(undescribed="state-space layers")
ENCODER: Final = Family(undescribed="encoder")

FAMILIES: Final[Mapping[str, Family]] = {
    "gptneox": Family(norm=Norm.LAYER, gated=False, biases=True),
    "pythia": Family(norm=Norm.LAYER, gated=False, biases=True),
    "gptj": Family(norm=Norm.LAYER, gated=False),
    "gptoss": Family(qkv_bias=True),
    "gpt": GPT,
    "megatron": GPT,
    "opt": GPT,
    # ALiBi takes no parameters, and BLOOM's own configuration has no dropout.
    "bloom": Family(norm=Norm.LAYER, gated=False, rotary=False, biases=True, tied=True, embedding_norm=True),
    "mpt": Family(norm=Norm.LAYER, gated=False, rotary=False, learned_positions=True, tied=True),
    "falcon": Family(norm=Norm.LAYER, gated=False, tied=True),
    "starcoder": Family(norm=Norm.LAYER, gated=False, biases=True, tied=True),
    "nemotronh": HYBRID,
    "nemotron": Family(norm=Norm.LAYER, gated=False),
    "mamba": HYBRID,
    "jamba": HYBRID,
    "gdn": Family(undescribed="linear attention"),
    "deepseek": Family(undescribed="latent attention"),
    "kimi": Family(undescribed="latent attention"),
    "bert": ENCODER,
    "t5": ENCODER,
    "vit": ENCODER,
    "llama": LLAMA,
    # The small ones of Llama 3.2, and those that nanotron's own configurations make of them.
    "llama321b": Family(tied=True),
    "llama323b": Family(tied=True),
    "llama1b": Family(tied=True),
    "llama3b": Family(tied=True),
    "mistral": LLAMA,
    "mixtral": LLAMA,
    "yi": LLAMA,
    "grok": LLAMA,
    "gemma": Family(tied=True),
    "qwen3": LLAMA,
    "qwen": Family(qkv_bias=True),
    "moe": LLAMA,
}
"""Families by how a name begins, spelled in small letters and digits alone; the longest beginning wins.

Sources: the families' own config classes and papers; Nemotron-4 has squared ReLU and no biases.
"""

TRAINERS: Final = ("nanotron", "meta", "nvidia")
"""Names of who trains or publishes, which may stand before the family's."""


def family_of(model: str) -> Family | None:
    """Return the family that a model's name begins with; None for a name that says nothing."""
    name = re.sub(r"[^a-z0-9]", "", model.lower())
    for trainer in TRAINERS:
        name = name.removeprefix(trainer)
    known = [prefix for prefix in FAMILIES if name.startswith(prefix)]
    return FAMILIES[max(known, key=len)] if known else None
