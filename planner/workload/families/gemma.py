"""Gemma: heads of their own width and a tied head; from Gemma 2 on windows and norms after branches too."""

from collections.abc import Sequence
from typing import Final

from planner.workload.block import Arrangement
from planner.workload.config_keys import ConfigKeys
from planner.workload.families.decoder_only import Chain
from planner.workload.families.layer_types import FULL, SLIDING, every, read_layer_types
from planner.workload.families.llama import Style, dense_chain
from planner.workload.families.sizes import Defaults, read_sizes

GEMMA: Final = Defaults(
    vocab_size=256000,
    hidden_size=3072,
    intermediate_size=24576,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=16,
    head_dim=256,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
)
GEMMA2: Final = Defaults(
    vocab_size=256000,
    hidden_size=2304,
    intermediate_size=9216,
    num_hidden_layers=26,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=256,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
    activation="hidden_activation",
)
GEMMA3: Final = Defaults(
    vocab_size=262208,
    hidden_size=2304,
    intermediate_size=9216,
    num_hidden_layers=26,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=256,
    max_position_embeddings=131072,
    tie_word_embeddings=True,
    activation="hidden_activation",
)
WITHOUT_COST: Final = (
    "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping", "cache_implementation",
    "rope_local_base_freq", "use_bidirectional_attention", "_sliding_window_pattern", "hidden_act",
    "hidden_activation",
)  # fmt: skip
"""Scales, caps and frequencies: no shape depends on them."""


def read_gemma(keys: ConfigKeys) -> Chain:
    """Read a ``gemma`` config with the defaults of GemmaConfig."""
    keys.ignore(*WITHOUT_COST)
    bias = keys.flag("attention_bias", default=False)
    style = Style(qkv_bias=bias, output_bias=bias)
    return dense_chain(keys, read_sizes(keys, GEMMA), style, prefixes=["Gemma"])


def read_gemma2(keys: ConfigKeys) -> Chain:
    """Read a ``gemma2`` config with the defaults of Gemma2Config: every other layer has a window."""
    return _windowed(keys, GEMMA2, period=2, query_key_norm=False, prefixes=["Gemma2"])


def read_gemma3_text(keys: ConfigKeys) -> Chain:
    """Read a ``gemma3_text`` config with the defaults of Gemma3TextConfig: five windows, then one without."""
    period = keys.size("sliding_window_pattern", 6)
    return _windowed(keys, GEMMA3, period=period, query_key_norm=True, prefixes=["Gemma3", "Gemma3Text"])


def _windowed(
    keys: ConfigKeys, defaults: Defaults, *, period: int, query_key_norm: bool, prefixes: Sequence[str]
) -> Chain:
    sizes, window = read_sizes(keys, defaults), keys.size_or_none("sliding_window", 4096)
    keys.ignore(*WITHOUT_COST)
    rule = every(period, odd_one=FULL, others=SLIDING)
    types = read_layer_types(keys, sizes.num_layers, rule=rule, known=(FULL, SLIDING))
    bias = keys.flag("attention_bias", default=False)
    style = Style(
        arrangement=Arrangement.SANDWICH,
        qkv_bias=bias,
        output_bias=bias,
        query_key_norm=query_key_norm,
    )
    windows = [window if kind == SLIDING else None for kind in types]
    return dense_chain(keys, sizes, style, prefixes=prefixes, windows=windows)
