"""The planner's own chain of layers on the wire: each kind of layer by its sizes."""

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.document import Flag, InputDocument, LayerCount, Share, WholeNumber, one_of
from planner.workload.passes import Norm

Size = Annotated[int, WholeNumber, Field(ge=1, le=10**9)]
SizeOrNone = Annotated[int, WholeNumber, Field(ge=0, le=10**9)]
KnownNorm = Annotated[Norm, one_of(Norm)]


class EmbeddingLayerDocument(InputDocument):
    """Token embedding, and ``positions`` learned positions."""

    kind: Literal["embedding"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    vocabulary: Size
    hidden: Size
    positions: SizeOrNone = 0
    dropout: Share = 0.0


class DecoderLayerDocument(InputDocument):
    """Equal blocks in a row: norm, causal self-attention, norm, MLP of width ``ffn``."""

    kind: Literal["decoder"]
    count: LayerCount = 1
    hidden: Size
    ffn: Size
    heads: Size
    kv_heads: Size
    head_dim: Size
    norm: KnownNorm = Norm.RMS
    gated: Flag = True
    rotary: Flag = True
    qkv_bias: Flag = False
    output_bias: Flag = False
    mlp_bias: Flag = False
    attention_dropout: Share = 0.0
    hidden_dropout: Share = 0.0


class NormLayerDocument(InputDocument):
    """The norm between the last block and the head."""

    kind: Literal["norm"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    hidden: Size
    norm: KnownNorm = Norm.RMS


class HeadLayerDocument(InputDocument):
    """Logits over the vocabulary and their loss; ``tied`` shares the weight of the embedding."""

    kind: Literal["head"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    vocabulary: Size
    hidden: Size
    tied: Flag = False
    bias: Flag = False


LayerDocument = Annotated[
    EmbeddingLayerDocument | DecoderLayerDocument | NormLayerDocument | HeadLayerDocument,
    Field(discriminator="kind"),
]
