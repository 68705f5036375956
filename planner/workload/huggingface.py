"""A Hugging Face config.json as a workload.

A missing key means the default of the family's config class in transformers (5.24), as loading the
file with the library would; null means what the class makes of null.
"""

from collections.abc import Mapping
from typing import Final

from planner.errors import InvalidRequest, UnknownName
from planner.names import nearest_names
from planner.workload.config_keys import ConfigKeys
from planner.workload.families.bert import read_bert, read_roberta
from planner.workload.families.decoder_only import Chain, ReadFamily
from planner.workload.families.efficientnet import read_efficientnet
from planner.workload.families.resnet import read_resnet
from planner.workload.families.t5 import T5_OTHER_NAMES, read_t5
from planner.workload.families.text import TEXT_FAMILIES, TEXT_OTHER_NAMES
from planner.workload.families.vision import read_vit
from planner.workload.families.vision_language import (
    read_gemma3,
    read_llama4,
    read_llava,
    read_qwen2_5_vl,
    read_qwen2_vl,
)
from planner.workload.layers import Workload
from planner.workload.sizes import UnfitValue, shown

FAMILIES: Final[Mapping[str, ReadFamily]] = {
    **TEXT_FAMILIES,
    "bert": read_bert,
    "efficientnet": read_efficientnet,
    "gemma3": read_gemma3,
    "llama4": read_llama4,
    "llava": read_llava,
    "qwen2_5_vl": read_qwen2_5_vl,
    "qwen2_vl": read_qwen2_vl,
    "resnet": read_resnet,
    "roberta": read_roberta,
    "t5": read_t5,
    "vit": read_vit,
}
"""How to read a config, by its ``model_type``."""

OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {**TEXT_OTHER_NAMES, "t5": T5_OTHER_NAMES}
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
    chain = _chain(family, keys, pointer=pointer)
    return Workload(
        name=name or _own_name(config) or family,
        family=family,
        runs=chain.runs,
        default_sequence_length=chain.sequence_length,
        not_understood=keys.not_understood,
    )


def _chain(family: str, keys: ConfigKeys, *, pointer: str) -> Chain:
    """Return the layers; sizes that are fit one by one and not together are refused as a whole."""
    try:
        return FAMILIES[family](keys)
    except UnfitValue as error:
        message = f"the config's sizes make a layer of {family} that cannot be: {error}"
        raise InvalidRequest(message, pointer=pointer) from error


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
