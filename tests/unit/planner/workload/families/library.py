"""The models of transformers, built on the meta device: no weights, no hub."""

import logging
from collections.abc import Callable, Mapping

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

logging.getLogger("transformers").setLevel(logging.ERROR)

DEFAULTS = {
    "efficientnet": "EfficientNetForImageClassification",
    "gemma3": "Gemma3ForConditionalGeneration",
    "llama4": "Llama4ForConditionalGeneration",
    "llava": "LlavaForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "resnet": "ResNetForImageClassification",
    "t5": "T5ForConditionalGeneration",
    "vit": "ViTForImageClassification",
}
"""What stands for the causal language model in families that have none, or are more than one."""


def library_parameters(config: Mapping[str, object]) -> int:
    """Return what the class that ``architectures`` names counts, by default the causal language model.

    A tied weight is one object and counts once.
    """
    weights = library_model(config).parameters()
    return sum({id(weight): weight.numel() for weight in weights}.values())


def library_buffers(config: Mapping[str, object]) -> int:
    """Return the numbers that the class keeps and does not train."""
    return sum(buffer.numel() for buffer in library_model(config).buffers())


def library_model(config: Mapping[str, object]) -> torch.nn.Module:
    """Return the model without its weights."""
    family = str(config["model_type"])
    rest = {key: value for key, value in config.items() if key != "model_type"}
    own = transformers.AutoConfig.for_model(family, **rest)
    name = own.architectures[0] if own.architectures else DEFAULTS.get(family)
    name = name or MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family]
    make: Callable[[object], torch.nn.Module] = getattr(transformers, name)
    with torch.device("meta"):
        return make(own)
