"""Vision transformers: ViT with its classifier, and the towers of CLIP, SigLIP, Llama 4 and Qwen-VL."""

from dataclasses import dataclass, replace
from typing import Final

from planner.workload.block import BlockLayer
from planner.workload.classifier import ClassifierLayer
from planner.workload.config_keys import ConfigKeys
from planner.workload.ends import NormLayer
from planner.workload.families.decoder_only import ACTIVATIONS, Chain
from planner.workload.families.plain_attention import plain_attention
from planner.workload.layers import EMBEDDING, ENCODER, VISION, Layer, runs_of
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.patches import PatchLayer
from planner.workload.pooling import AttentionPoolLayer
from planner.workload.self_attention import SelfAttention
from planner.workload.sizes import MAX_COUNT, MAX_SIZE
from planner.workload.streams import MAX_PIXELS, ImageStream

VIT_HEADS: Final = ("ViTForImageClassification", "ViTModel")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tower:
    """The layers that make tokens of images, how wide the tokens are, and the images."""

    layers: tuple[Layer, ...]
    hidden: int
    stream: ImageStream


@dataclass(frozen=True, kw_only=True, slots=True)
class TowerDefaults:
    """What a missing key means to the config class of a tower."""

    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    image_size: int = 224
    patch_size: int = 16
    activation: str = "gelu"


VIT: Final = TowerDefaults()
CLIP: Final = TowerDefaults(patch_size=32)
SIGLIP: Final = TowerDefaults()
LLAMA4: Final = TowerDefaults(
    intermediate_size=5632, num_hidden_layers=34, num_attention_heads=16, image_size=448, patch_size=14
)


def read_images(keys: ConfigKeys, defaults: TowerDefaults, *, extra_tokens: int = 0) -> ImageStream:
    """Return the images of a tower: sides of patches and images, in pixels."""
    image_size = keys.size("image_size", defaults.image_size, largest=MAX_PIXELS)
    patch_size = keys.size("patch_size", defaults.patch_size, largest=MAX_PIXELS)
    if patch_size > image_size:
        message = f"patch_size ({patch_size}) must be at most image_size ({image_size})"
        keys.refuse("patch_size", message)
    stream = ImageStream(image_size=image_size, patch_size=patch_size, extra_tokens=extra_tokens)
    if stream.tokens(0) > MAX_SIZE:
        message = f"image_size ({image_size}) makes {stream.tokens(0)} patches, more than {MAX_SIZE}"
        keys.refuse("image_size", message)
    return stream


def read_blocks(
    keys: ConfigKeys,
    defaults: TowerDefaults,
    *,
    stream: ImageStream,
    role: str = VISION,
    attention_dropout: str = "attention_dropout",
) -> list[Layer]:
    """Return equal blocks with biases everywhere, as ViT, CLIP and SigLIP have them."""
    hidden = keys.size("hidden_size", defaults.hidden_size)
    keys.choice("hidden_act", defaults.activation, ACTIVATIONS)
    attention = plain_attention(
        keys,
        hidden=hidden,
        heads_by_default=defaults.num_attention_heads,
        causal=False,
        qkv_bias=keys.flag("qkv_bias", default=True),
        output_bias=True,
        dropout=keys.probability(attention_dropout, 0.0),
    )
    ffn = keys.size("intermediate_size", defaults.intermediate_size)
    block = BlockLayer(
        branches=(attention, Mlp(hidden=hidden, ffn=ffn, gated=False, bias=True)),
        role=role,
        norm=Norm.LAYER,
        dropout=keys.probability("hidden_dropout_prob", 0.0),
        stream=stream,
    )
    return [block] * keys.size("num_hidden_layers", defaults.num_hidden_layers, largest=MAX_COUNT)


def read_vit(keys: ConfigKeys) -> Chain:
    """Read a ``vit`` config with the defaults of ViTConfig: a classifier of images, or a pooler alone."""
    stream, hidden = read_images(keys, VIT, extra_tokens=1), keys.size("hidden_size", VIT.hidden_size)
    named = keys.architecture(VIT_HEADS) or VIT_HEADS[0]
    is_classifier = named == VIT_HEADS[0]
    patches = PatchLayer(
        hidden=hidden,
        stream=stream,
        role=EMBEDDING,
        channels=keys.size("num_channels", 3),
        positions=stream.tokens(0),
        class_token=True,
        dropout=keys.probability("hidden_dropout_prob", 0.0),
    )
    blocks = read_blocks(
        keys, VIT, stream=stream, role=ENCODER, attention_dropout="attention_probs_dropout_prob"
    )
    classes = keys.classes() if is_classifier else 0
    head = ClassifierLayer(hidden=hidden, classes=classes, bias=True, pooler=not is_classifier, stream=stream)
    norm = NormLayer(hidden=hidden, norm=Norm.LAYER, stream=stream)
    keys.ignore("encoder_stride", "pooler_act")
    keys.expect("pooler_output_size", hidden)
    return Chain(runs=runs_of((patches, *blocks, norm, head)), sequence_length=None)


def read_clip_vision(keys: ConfigKeys, defaults: TowerDefaults = CLIP) -> Tower:
    """Read a ``clip_vision_model`` config: a class token, norms before the blocks and after."""
    stream = read_images(keys, defaults, extra_tokens=1)
    hidden = keys.size("hidden_size", defaults.hidden_size)
    patches = PatchLayer(
        hidden=hidden,
        stream=stream,
        channels=keys.size("num_channels", 3),
        bias=False,
        positions=stream.tokens(0),
        class_token=True,
    )
    norm = NormLayer(hidden=hidden, norm=Norm.LAYER, stream=stream)
    blocks = read_blocks(keys, replace(defaults, activation="quick_gelu"), stream=stream)
    keys.ignore("projection_dim", "vocab_size", "dropout")
    return Tower(layers=(patches, norm, *blocks, norm), hidden=hidden, stream=stream)


def read_siglip_vision(keys: ConfigKeys) -> Tower:
    """Read a ``siglip_vision_model`` config: no class token, a norm after the blocks, a head that pools."""
    stream, hidden = read_images(keys, SIGLIP), keys.size("hidden_size", SIGLIP.hidden_size)
    patches = PatchLayer(
        hidden=hidden,
        stream=stream,
        channels=keys.size("num_channels", 3),
        positions=stream.tokens(0),
    )
    blocks = read_blocks(keys, SIGLIP, stream=stream)
    norm = NormLayer(hidden=hidden, norm=Norm.LAYER, stream=stream)
    pool = AttentionPoolLayer(
        hidden=hidden,
        ffn=keys.size("intermediate_size", SIGLIP.intermediate_size),
        heads=keys.size("num_attention_heads", SIGLIP.num_attention_heads),
        stream=stream,
    )
    head = (pool,) if keys.flag("vision_use_head", default=True) else ()
    return Tower(layers=(patches, *blocks, norm, *head), hidden=hidden, stream=stream)


QWEN_IMAGE_SIZE: Final = 448
"""Qwen-VL takes images of any size; this one makes 256 tokens of each."""


def read_qwen2_vl_vision(keys: ConfigKeys) -> Tower:
    """Read the ``vision_config`` of a ``qwen2_vl``: layer norms, plain MLPs, no windows."""
    hidden = keys.size("embed_dim", 1280)
    stream, patches = _qwen_patches(keys, hidden=hidden)
    keys.choice("hidden_act", "quick_gelu", ACTIVATIONS)
    attention = _qwen_attention(keys, hidden=hidden)
    mlp = Mlp(hidden=hidden, ffn=keys.times("mlp_ratio", 4, hidden), gated=False, bias=True)
    block = BlockLayer(branches=(attention, mlp), role=VISION, norm=Norm.LAYER, stream=stream)
    depth = keys.size("depth", 32, largest=MAX_COUNT)
    return Tower(layers=(patches, *[block] * depth), hidden=hidden, stream=stream)


def read_qwen2_5_vl_vision(keys: ConfigKeys) -> Tower:
    """Read the ``vision_config`` of a ``qwen2_5_vl``: RMS norms, gated MLPs, windows in most blocks."""
    hidden, depth = keys.size("hidden_size", 3584), keys.size("depth", 32, largest=MAX_COUNT)
    stream, patches = _qwen_patches(keys, hidden=hidden)
    whole, mlp = _qwen_attention(keys, hidden=hidden), _qwen_gated_mlp(keys, hidden=hidden)
    side = max(1, keys.size("window_size", 112, largest=QWEN_IMAGE_SIZE) // stream.patch_size)
    keys.ignore("tokens_per_second")

    def block(attention: SelfAttention) -> Layer:
        return BlockLayer(branches=(attention, mlp), role=VISION, stream=stream)

    sees_all = keys.places("fullatt_block_indexes", (7, 15, 23, 31))
    full, windowed = block(whole), block(replace(whole, chunk=side**2))
    blocks = [full if place in sees_all else windowed for place in range(depth)]
    return Tower(layers=(patches, *blocks), hidden=hidden, stream=stream)


def _qwen_gated_mlp(keys: ConfigKeys, *, hidden: int) -> Mlp:
    keys.choice("hidden_act", "silu", ACTIVATIONS)
    return Mlp(hidden=hidden, ffn=keys.size("intermediate_size", 3420), bias=True)


def _qwen_patches(keys: ConfigKeys, *, hidden: int) -> tuple[ImageStream, PatchLayer]:
    stream = ImageStream(
        image_size=QWEN_IMAGE_SIZE, patch_size=keys.size("patch_size", 14, largest=QWEN_IMAGE_SIZE)
    )
    patches = PatchLayer(
        hidden=hidden,
        stream=stream,
        channels=keys.size("in_channels", 3),
        frames=keys.size("temporal_patch_size", 2),
        bias=False,
    )
    return stream, patches


def _qwen_attention(keys: ConfigKeys, *, hidden: int) -> SelfAttention:
    return plain_attention(
        keys,
        hidden=hidden,
        heads_by_default=16,
        heads_key="num_heads",
        causal=False,
        qkv_bias=True,
        output_bias=True,
        rotary=True,
    )
