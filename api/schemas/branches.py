"""The branches of a block on the wire: each type by its sizes."""

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.document import Flag, InputDocument, Share
from api.schemas.sizes import Size, SizeOrNone


class AttentionDocument(InputDocument):
    """Self-attention with grouped key heads."""

    type: Literal["attention"]
    hidden: Size
    heads: Size
    kv_heads: Size
    head_dim: Size
    causal: Flag = True
    rotary: Flag = True
    qkv_bias: Flag = False
    output_bias: Flag = False
    query_key_norm: Flag = False
    gated: Flag = False
    sinks: Flag = False
    relative_buckets: SizeOrNone = 0
    window: Size | None = Field(default=None, description="Keys that a query sees; null for all.")
    chunk: Size | None = Field(default=None, description="Tokens that see each other alone; null for all.")
    dropout: Share = 0.0


class MlpDocument(InputDocument):
    """Up, activation, down; with a gate where it is ``gated``."""

    type: Literal["mlp"]
    hidden: Size
    ffn: Size
    gated: Flag = True
    bias: Flag = False
    dropout: Share = 0.0


class LatentAttentionDocument(InputDocument):
    """Attention over keys and values that are kept as one narrow latent."""

    type: Literal["latent_attention"]
    hidden: Size
    heads: Size
    key_value_rank: Size
    plain_dim: Size = Field(description="Width of a head's queries and keys without rotation.")
    rotary_dim: Size = Field(description="Width of a head's queries and keys with rotation.")
    value_dim: Size
    query_rank: Size | None = Field(default=None, description="Null: queries straight from the input.")
    bias: Flag = False
    dropout: Share = 0.0


class ExpertsDocument(InputDocument):
    """A router, ``experts`` MLPs of which ``top_k`` work on a token, and ``shared_ffn`` that works on all."""

    type: Literal["experts"]
    hidden: Size
    experts: Size
    top_k: Size
    ffn: Size
    gated: Flag = True
    bias: Flag = False
    router_bias: Flag = False
    correction_bias: Flag = False
    shared_ffn: SizeOrNone = 0
    shared_gate: Flag = False
    latent: Size | None = Field(default=None, description="Width at which tokens are sent; null: hidden.")


BranchDocument = Annotated[
    AttentionDocument | LatentAttentionDocument | MlpDocument | ExpertsDocument, Field(discriminator="type")
]
