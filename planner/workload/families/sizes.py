"""The sizes that most decoder-only families name alike, and what their absence means to each."""

from dataclasses import dataclass

from planner.workload.config_keys import ConfigKeys
from planner.workload.families.decoder_only import ACTIVATIONS, MAX_POSITIONS
from planner.workload.sizes import MAX_COUNT


@dataclass(frozen=True, kw_only=True, slots=True)
class Defaults:
    """What a missing key means to a family's config class.

    ``num_key_value_heads`` None means as many as heads, ``head_dim`` None the hidden size over the heads.
    ``activation`` is the key that names the activation; ``whole_heads`` tells that the hidden size has to
    be a multiple of the heads where it decides their width.
    """

    vocab_size: int
    hidden_size: int = 4096
    intermediate_size: int
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    activation: str = "hidden_act"
    whole_heads: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The sizes of one model."""

    vocabulary: int
    hidden: int
    ffn: int
    num_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    positions: int
    is_tied: bool


def read_sizes(keys: ConfigKeys, defaults: Defaults) -> Sizes:
    """Read the sizes of a decoder-only model; key heads divide the heads."""
    hidden = keys.size("hidden_size", defaults.hidden_size)
    heads = keys.size("num_attention_heads", defaults.num_attention_heads)
    keys.choice(defaults.activation, "silu", ACTIVATIONS)
    keys.expect("is_encoder_decoder", False)  # noqa: FBT003 - the value that changes nothing
    return Sizes(
        vocabulary=keys.size("vocab_size", defaults.vocab_size),
        hidden=hidden,
        ffn=keys.size("intermediate_size", defaults.intermediate_size),
        num_layers=keys.size("num_hidden_layers", defaults.num_hidden_layers, largest=MAX_COUNT),
        heads=heads,
        kv_heads=read_kv_heads(keys, defaults.num_key_value_heads, heads=heads),
        head_dim=read_head_dim(keys, defaults, hidden=hidden, heads=heads),
        positions=keys.size(
            "max_position_embeddings", defaults.max_position_embeddings, largest=MAX_POSITIONS
        ),
        is_tied=keys.flag("tie_word_embeddings", default=defaults.tie_word_embeddings),
    )


def read_kv_heads(
    keys: ConfigKeys, default: int | None, *, heads: int, key: str = "num_key_value_heads"
) -> int:
    """Return the key heads, which divide the heads; null means as many."""
    kv_heads = keys.size(key, default or heads, null=heads)
    if heads % kv_heads:
        divisors = [number for number in range(min(kv_heads, heads), 0, -1) if heads % number == 0]
        keys.refuse(
            key,
            f"num_attention_heads ({heads}) must be a multiple of {key} ({kv_heads})",
            nearest_legal=divisors[:1],
        )
    return kv_heads


def read_head_dim(keys: ConfigKeys, defaults: Defaults, *, hidden: int, heads: int) -> int:
    """Return the width of a head; where nothing says it, the hidden size over the heads."""
    if defaults.head_dim is not None:
        return keys.size("head_dim", defaults.head_dim)
    head_dim = keys.size("head_dim", hidden // heads or 1, null=hidden // heads or 1)
    if defaults.whole_heads and not keys.has("head_dim"):
        require_whole_heads(keys, "hidden_size", hidden, "num_attention_heads", heads)
    return head_dim


def require_whole_heads(keys: ConfigKeys, hidden_key: str, hidden: int, heads_key: str, heads: int) -> None:
    """Refuse a hidden size that is no multiple of the number of heads."""
    if hidden % heads:
        keys.refuse(hidden_key, f"{hidden_key} ({hidden}) must be a multiple of {heads_key} ({heads})")
