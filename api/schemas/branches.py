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


BranchDocument = Annotated[AttentionDocument | MlpDocument, Field(discriminator="type")]
