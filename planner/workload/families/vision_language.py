"""Models that see: a vision tower, a projector to the width of the text, and a language model."""

from collections.abc import Sequence
from math import isqrt
from typing import Final

from planner.names import nearest_names
from planner.workload.config_keys import ConfigKeys
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer
from planner.workload.families.decoder_only import ACTIVATIONS, Chain
from planner.workload.families.gemma import read_gemma3_text
from planner.workload.families.layer_types import read_switched_windows
from planner.workload.families.llama import Style, dense_chain
from planner.workload.families.mixture import read_llama4_text
from planner.workload.families.sizes import Defaults, read_sizes
from planner.workload.families.text import TEXT_FAMILIES, TEXT_OTHER_NAMES
from planner.workload.families.vision import (
    CLIP,
    LLAMA4,
    Tower,
    TowerDefaults,
    read_clip_vision,
    read_qwen2_5_vl_vision,
    read_qwen2_vl_vision,
    read_siglip_vision,
)
from planner.workload.layers import HEAD, Layer, runs_of
from planner.workload.passes import Norm
from planner.workload.projector import ProjectorLayer
from planner.workload.sizes import shown

LLAVA_CLIP: Final = TowerDefaults(
    hidden_size=1024,
    intermediate_size=4096,
    num_hidden_layers=24,
    num_attention_heads=16,
    image_size=336,
    patch_size=14,
)
"""The tower of a LLaVA whose file has none."""
MAX_MERGE: Final = 16
"""Above any number of patches that are joined along one side."""
QWEN_VL_TEXT: Final = Defaults(
    vocab_size=152064,
    hidden_size=8192,
    intermediate_size=29568,
    num_hidden_layers=80,
    num_attention_heads=64,
    num_key_value_heads=8,
    max_position_embeddings=32768,
)
TOKENS: Final = (
    "image_token_index", "image_seq_length", "vision_feature_select_strategy", "boi_token_index",
    "eoi_token_index", "video_token_index",
)  # fmt: skip
"""Which tokens stand for images: no shape depends on them."""


def read_llava(keys: ConfigKeys) -> Chain:
    """Read a ``llava`` config with the defaults of LlavaConfig: a tower, two maps, any language model."""
    text, family = _text_section(keys, default="llama")
    chain, tower = TEXT_FAMILIES[family](text), _llava_tower(keys)
    hidden = _embedding(chain).hidden
    keys.choice("projector_hidden_act", "gelu", ACTIVATIONS)
    keys.ignore(*TOKENS)
    projector = ProjectorLayer(
        widths=(tower.hidden * keys.how_many("vision_feature_layer"), hidden, hidden),
        bias=keys.flag("multimodal_projector_bias", default=True),
        stream=tower.stream.merged(1),
    )
    is_tied = _tied_anywhere(keys, text)
    return _joined(keys, (*tower.layers, projector), chain, is_tied=is_tied, prefix="Llava")


def _llava_tower(keys: ConfigKeys) -> Tower:
    vision = keys.section("vision_config")
    family = vision.choice("model_type", "clip_vision_model", {"clip_vision_model", "siglip_vision_model"})
    if family == "siglip_vision_model":
        return read_siglip_vision(vision)
    return read_clip_vision(vision, CLIP if keys.has("vision_config") else LLAVA_CLIP)


def read_qwen2_vl(keys: ConfigKeys) -> Chain:
    """Read a ``qwen2_vl`` config: a tower with layer norms, a merger of patches, Qwen2's decoder."""
    vision = keys.section("vision_config")
    tower, out = read_qwen2_vl_vision(vision), vision.size("hidden_size", 3584)
    return _qwen_vl(keys, vision, tower, norm=Norm.LAYER, out=out, prefix="Qwen2VL")


def read_qwen2_5_vl(keys: ConfigKeys) -> Chain:
    """Read a ``qwen2_5_vl`` config: a tower with windows, a merger of patches, Qwen2's decoder."""
    vision = keys.section("vision_config")
    tower, out = read_qwen2_5_vl_vision(vision), vision.size("out_hidden_size", 3584)
    return _qwen_vl(keys, vision, tower, norm=Norm.RMS, out=out, prefix="Qwen2_5_VL")


def _qwen_vl(
    keys: ConfigKeys, vision: ConfigKeys, tower: Tower, *, norm: Norm, out: int, prefix: str
) -> Chain:
    """Return tower, merger and decoder; older files have the decoder's keys beside the sections."""
    merge = vision.size("spatial_merge_size", 2, largest=MAX_MERGE)
    vision.ignore("in_chans", "spatial_patch_size", "out_hidden_size", "intermediate_size")
    keys.ignore(*TOKENS)
    text = keys.section("text_config") if keys.has("text_config") else keys
    sizes = read_sizes(text, QWEN_VL_TEXT)
    windows = read_switched_windows(text, sizes.num_layers, default=4096, first=80)
    chain = dense_chain(text, sizes, Style(qkv_bias=True), prefixes=[], windows=windows)
    merged = tower.hidden * merge**2
    merger = ProjectorLayer(
        widths=(merged, merged, out),
        bias=True,
        norm=norm,
        norm_width=tower.hidden,
        stream=tower.stream.merged(merge),
    )
    is_tied = _tied_anywhere(keys, text)
    return _joined(keys, (*tower.layers, merger), chain, is_tied=is_tied, prefix=prefix)


def read_gemma3(keys: ConfigKeys) -> Chain:
    """Read a ``gemma3`` config: SigLIP's tower, tokens averaged to a fixed number, Gemma 3's decoder."""
    tower = read_siglip_vision(keys.section("vision_config"))
    chain = read_gemma3_text(keys.section("text_config"))
    side, wanted = isqrt(tower.stream.patches), isqrt(keys.size("mm_tokens_per_image", 256))
    projector = ProjectorLayer(
        widths=(tower.hidden, _embedding(chain).hidden),
        norm=Norm.RMS,
        stream=tower.stream.merged(max(1, side // wanted)),
    )
    keys.ignore(*TOKENS)
    is_tied = keys.flag("tie_word_embeddings", default=True)
    return _joined(keys, (*tower.layers, projector), chain, is_tied=is_tied, prefix="Gemma3")


def read_llama4(keys: ConfigKeys) -> Chain:
    """Read a ``llama4`` config: a tower, patches joined to wider tokens, an adapter, the decoder."""
    vision, text = keys.section("vision_config"), keys.section("text_config")
    tower, chain = read_clip_vision(vision, LLAMA4), read_llama4_text(text)
    joined = max(1, round(1 / vision.fraction("pixel_shuffle_ratio", 0.5)))
    adapter = ProjectorLayer(
        widths=(
            vision.size("intermediate_size", 5632),
            vision.size("projector_input_dim", 4096),
            vision.size("projector_output_dim", 4096),
        ),
        activates_output=True,
        stream=tower.stream.merged(joined),
    )
    out = vision.size("vision_output_dim", 7680)
    projector = ProjectorLayer(widths=(out, _embedding(chain).hidden), stream=adapter.stream)
    vision.ignore("projector_dropout", "multi_modal_projector_bias", "vision_feature_select_strategy")
    vision.ignore("vision_feature_layer")
    keys.ignore(*TOKENS, "tie_word_embeddings")
    is_tied = text.flag("tie_word_embeddings", default=False)
    return _joined(keys, (*tower.layers, adapter, projector), chain, is_tied=is_tied, prefix="Llama4")


def _text_section(keys: ConfigKeys, *, default: str) -> tuple[ConfigKeys, str]:
    """Return the keys of the language model and its family."""
    named = keys.section("text_config").text("model_type") or default
    text = keys.section("text_config", other_names=TEXT_OTHER_NAMES.get(named))
    if named not in TEXT_FAMILIES:
        nearest = nearest_names(named, TEXT_FAMILIES)
        text.refuse("model_type", f"model_type {shown(named)} is not known", nearest_legal=nearest)
    text.ignore("architectures")
    return text, named


def _tied_anywhere(keys: ConfigKeys, text: ConfigKeys) -> bool:
    """Tell whether the model's own switch or that of its text ties the head."""
    own = keys.flag("tie_word_embeddings", default=False)
    return text.flag("tie_word_embeddings", default=False) or own


def _joined(keys: ConfigKeys, vision: Sequence[Layer], text: Chain, *, is_tied: bool, prefix: str) -> Chain:
    """Return the vision layers before the text's, with the head that ``architectures`` names."""
    layers = [run.layer for run in text.runs for _ in range(run.count) if run.layer.kind != HEAD]
    named = keys.architecture((f"{prefix}ForConditionalGeneration", f"{prefix}Model"))
    embedding = _embedding(text)
    head = HeadLayer(vocabulary=embedding.vocabulary, hidden=embedding.hidden, tied=is_tied)
    ends = () if named == f"{prefix}Model" else (head,)
    return Chain(runs=runs_of((*vision, *layers, *ends)), sequence_length=text.sequence_length)


def _embedding(text: Chain) -> EmbeddingLayer:
    """Return the token embedding, with which every language model begins."""
    first = text.runs[0].layer
    assert isinstance(first, EmbeddingLayer)
    return first
