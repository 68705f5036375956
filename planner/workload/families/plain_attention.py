"""Attention whose heads share out the hidden size, as many for keys as for queries."""

from planner.workload.config_keys import ConfigKeys
from planner.workload.families.sizes import require_whole_heads
from planner.workload.self_attention import SelfAttention


def plain_attention(
    keys: ConfigKeys,
    *,
    hidden: int,
    heads_by_default: int,
    hidden_key: str = "hidden_size",
    heads_key: str = "num_attention_heads",
    causal: bool = True,
    rotary: bool = False,
    qkv_bias: bool = False,
    output_bias: bool = False,
    dropout: float = 0.0,
) -> SelfAttention:
    """Read the heads of such attention; a hidden size that they do not divide is refused by its key."""
    heads = keys.size(heads_key, heads_by_default)
    require_whole_heads(keys, hidden_key, hidden, heads_key, heads)
    return SelfAttention(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        causal=causal,
        rotary=rotary,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        dropout=dropout,
    )
