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


class CrossAttentionDocument(InputDocument):
    """Attention of a decoder to the output of an encoder."""

    type: Literal["cross_attention"]
    hidden: Size
    heads: Size
    head_dim: Size
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


class GatedDeltaNetDocument(InputDocument):
    """Linear attention that corrects its state, with a gate."""

    type: Literal["delta_net"]
    hidden: Size
    key_heads: Size
    value_heads: Size
    key_dim: Size
    value_dim: Size
    kernel: Size = Field(default=4, description="Tokens that the convolution sees.")


class StateSpaceDocument(InputDocument):
    """A state-space mixer whose heads have one decay each (Mamba-2)."""

    type: Literal["state_space"]
    hidden: Size
    heads: Size
    head_dim: Size
    state: Size = Field(description="Width of the state of a channel.")
    groups: Size = 1
    kernel: Size = 4
    chunk: Size = 256
    bias: Flag = False
    convolution_bias: Flag = True


class RetentionDocument(InputDocument):
    """Linear attention in chunks whose heads forget at a fixed rate, with a gate (RetNet)."""

    type: Literal["retention"]
    hidden: Size
    heads: Size
    key_dim: Size = Field(description="Width of a head's queries and keys.")
    value_dim: Size = Field(description="Width of a head's values and of its gate.")
    chunk: Size = 512


class SelectiveScanDocument(InputDocument):
    """A state-space mixer whose channels have a state each (Mamba)."""

    type: Literal["selective_scan"]
    hidden: Size
    inner: Size = Field(description="Channels that are scanned.")
    state: Size
    rank: Size = Field(description="Rank of the step sizes.")
    kernel: Size = 4
    bias: Flag = False
    convolution_bias: Flag = True
    norms: Flag = False


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
    AttentionDocument
    | CrossAttentionDocument
    | LatentAttentionDocument
    | GatedDeltaNetDocument
    | StateSpaceDocument
    | RetentionDocument
    | SelectiveScanDocument
    | MlpDocument
    | ExpertsDocument,
    Field(discriminator="type"),
]
