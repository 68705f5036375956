"""The planner's own chain of layers on the wire: each kind of layer by its sizes."""

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.branches import BranchDocument
from api.schemas.document import (
    EXPERIMENTAL,
    Flag,
    InputDocument,
    LayerCount,
    Name,
    Share,
    WholeNumber,
    one_of,
)
from api.schemas.parts import ConvolutionDocument, KnownActivation, PartDocument
from api.schemas.sizes import Extent, KnownNorm, Size, SizeOrNone
from planner.workload.block import Arrangement
from planner.workload.feature_map import Activation
from planner.workload.layers import DECODER, ENCODER, PROJECTOR, VISION
from planner.workload.passes import Norm
from planner.workload.traced import SampleDim

KnownArrangement = Annotated[Arrangement, one_of(Arrangement)]


class TextStreamDocument(InputDocument):
    """One sequence per sample; ``is_target`` where it is the decoder's of an encoder-decoder."""

    type: Literal["text"]
    is_target: Flag = False
    length: Size | None = None


class ImageStreamDocument(InputDocument):
    """Images of each sample, cut into patches, of which ``merge`` x ``merge`` make one token."""

    type: Literal["images"]
    image_size: Size
    patch_size: Size
    merge: Size = 1
    extra_tokens: SizeOrNone = 0
    images: SizeOrNone = 1


class VectorStreamDocument(InputDocument):
    """One vector per sample."""

    type: Literal["vectors"]


StreamDocument = Annotated[
    TextStreamDocument | ImageStreamDocument | VectorStreamDocument, Field(discriminator="type")
]


class EmbeddingLayerDocument(InputDocument):
    """Token embedding, ``positions`` learned positions, a norm; a narrower table has its own ``width``."""

    kind: Literal["embedding"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    vocabulary: Size
    hidden: Size
    positions: SizeOrNone = 0
    dropout: Share = 0.0
    types: SizeOrNone = 0
    norm: KnownNorm | None = None
    width: Size | None = None
    shared: Flag = Field(default=False, description="Uses the token table of an embedding before it.")
    stream: StreamDocument | None = Field(default=None, json_schema_extra=EXPERIMENTAL)


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
    arrangement: KnownArrangement = Arrangement.PRE
    query_key_norm: Flag = False
    window: Size | None = Field(default=None, description="Keys that a query sees; null for all.")


class InnerBlockDocument(InputDocument):
    """A block of branches within a layer."""

    branches: Annotated[tuple[BranchDocument, ...], Field(min_length=1, max_length=16)]
    role: Name = DECODER
    norm: KnownNorm = Norm.RMS
    arrangement: KnownArrangement = Arrangement.PRE
    dropout: Share = 0.0
    stream: StreamDocument | None = Field(default=None, json_schema_extra=EXPERIMENTAL)


class BlockLayerDocument(InnerBlockDocument):
    """Equal blocks in a row, each made of branches; a plan calls them by their ``role``."""

    kind: Literal["block"]
    count: LayerCount = 1


class PredictionLayerDocument(InputDocument):
    """Extra layers that learn to predict a token further: a map, a block, the model's own head."""

    kind: Literal["mtp"]
    count: LayerCount = 1
    block: InnerBlockDocument
    vocabulary: Size


class PatchLayerDocument(InputDocument):
    """Patches of images to tokens, with learned positions and perhaps a class token."""

    kind: Literal["patches"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    hidden: Size
    stream: ImageStreamDocument
    role: Name = VISION
    channels: Size = 3
    frames: Size = 1
    bias: Flag = True
    positions: SizeOrNone = 0
    class_token: Flag = False
    dropout: Share = 0.0


class AttentionPoolLayerDocument(InputDocument):
    """One learned query that attends to all tokens of an image, and an MLP."""

    kind: Literal["attention_pool"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    hidden: Size
    ffn: Size
    heads: Size
    stream: ImageStreamDocument


class ProjectorLayerDocument(InputDocument):
    """Maps from the first width through the others to the last, token by token."""

    kind: Literal["projector"]
    count: LayerCount = 1
    widths: Annotated[tuple[Size, ...], Field(min_length=2, max_length=16)]
    role: Name = PROJECTOR
    bias: Flag = False
    norm: KnownNorm | None = None
    norm_width: Size | None = None
    output_norm: KnownNorm | None = None
    activates_output: Flag = False
    stream: StreamDocument | None = Field(default=None, json_schema_extra=EXPERIMENTAL)


class NormLayerDocument(InputDocument):
    """The norm between the last block and the head."""

    kind: Literal["norm"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    hidden: Size
    norm: KnownNorm = Norm.RMS
    stream: StreamDocument | None = Field(default=None, json_schema_extra=EXPERIMENTAL)


class HeadLayerDocument(InputDocument):
    """Logits over the vocabulary and their loss; ``tied`` shares the weight of the embedding."""

    kind: Literal["head"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    vocabulary: Size
    hidden: Size
    tied: Flag = False
    bias: Flag = False
    stream: StreamDocument | None = Field(default=None, json_schema_extra=EXPERIMENTAL)


class ClassifierLayerDocument(InputDocument):
    """A map to a few classes and its loss, of one vector per sample or of every token."""

    kind: Literal["classifier"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    hidden: Size
    classes: SizeOrNone
    bias: Flag = False
    pooler: Flag = False
    per_token: Flag = False
    sharded: Flag = Field(default=False, description="Splits its classes over tensor parallel.")
    stream: StreamDocument | None = Field(default=None, json_schema_extra=EXPERIMENTAL)


class ConvolutionalLayerDocument(InputDocument):
    """Convolutions one after the other over maps of images, perhaps around a residual sum.

    One position of the map that it reads stands for a patch of the images of its ``stream``.
    """

    kind: Literal["convolutional"]
    count: LayerCount = 1
    parts: Annotated[tuple[PartDocument, ...], Field(min_length=1, max_length=64)]
    stream: ImageStreamDocument
    residual: Flag = False
    shortcut: ConvolutionDocument | None = Field(
        default=None, description="What brings the input to the shape of what is added to it."
    )
    activation: KnownActivation = Field(default=Activation.NONE, description="That of the sum.")
    dropout: Share = 0.0
    role: Name = ENCODER


class PoolLayerDocument(InputDocument):
    """The mean of every channel over the whole map of an image."""

    kind: Literal["pool"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    channels: Size
    stream: ImageStreamDocument


class LstmLayerDocument(InputDocument):
    """A layer of long short-term memory: four gates of width ``hidden``."""

    kind: Literal["lstm"]
    count: LayerCount = 1
    inputs: Size
    hidden: Size
    bidirectional: Flag = False
    bias: Flag = True
    dropout: Share = 0.0
    stream: StreamDocument | None = Field(default=None, json_schema_extra=EXPERIMENTAL)


class TablesLayerDocument(InputDocument):
    """Embedding tables of a recommendation model: one vector of ``width`` from each."""

    kind: Literal["tables"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    table_rows: Annotated[tuple[Size, ...], Field(min_length=1, max_length=10**4)]
    width: Size
    lookups: Size = Field(default=1, description="Rows of each table whose sum is its vector.")
    beside: SizeOrNone = Field(
        default=1, description="Vectors that come from the layer before and go on with them."
    )


class InteractionLayerDocument(InputDocument):
    """The dot products of all pairs of a sample's vectors, beside the first vector itself."""

    kind: Literal["interaction"]
    count: Annotated[LayerCount, Field(le=1)] = 1
    vectors: Annotated[Size, Field(ge=2)]
    width: Size
    with_itself: Flag = False


class VolumeDocument(InputDocument):
    """Data of one sample, and with ``fixed`` of a micro-batch however many samples it has.

    ``elements`` are as wide as activations, ``bytes`` have a width of their own.
    """

    elements: Extent = 0
    bytes: Extent = 0
    fixed_elements: Extent = 0
    fixed_bytes: Extent = 0


class TracedOperatorDocument(InputDocument):
    """What all traced operators have: ``repeat`` of them run, each saves so much for backward."""

    name: Name
    repeat: Annotated[int, WholeNumber, Field(ge=1, le=10**5)] = 1
    saved: VolumeDocument | None = None


class TracedProductDocument(TracedOperatorDocument):
    """``count`` products of rows x inner and inner x columns; ``grows`` is the dimension of one sample."""

    type: Literal["product"]
    rows: Size
    columns: Size
    inner: Size
    count: Size = 1
    steps: Annotated[int, WholeNumber, Field(ge=1, le=10**5)] = Field(
        default=1, description="Times that each runs with the same weights, one after the other."
    )
    grows: Annotated[SampleDim, one_of(SampleDim)] = SampleDim.ROWS
    has_weights: Flag = True
    has_input_gradient: Flag = True
    input_elements: Size | None = Field(default=None, description="Of a convolution, whose windows overlap.")


class TracedAttentionDocument(TracedOperatorDocument):
    """A fused attention core over ``batch`` sequences of one sample."""

    type: Literal["attention_core"]
    query_length: Size
    key_length: Size
    heads: Size
    kv_heads: Size
    head_dim: Size
    value_dim: Size
    causal: Flag
    batch: Size = 1


class TracedPassDocument(TracedOperatorDocument):
    """What a pass reads and writes; ``resembles`` is the measured kernel that it is priced as."""

    type: Literal["pass"]
    resembles: Name
    forward: VolumeDocument | None = None
    backward: VolumeDocument | None = None
    flops: Extent = Field(default=0, description="Useful FLOP of one sample: depth-wise convolutions.")


TracedDocument = Annotated[
    TracedProductDocument | TracedAttentionDocument | TracedPassDocument, Field(discriminator="type")
]


class TracedLayerDocument(InputDocument):
    """Equal parts of a module in a row, by the operators that a tracer saw; a plan calls them by ``role``."""

    kind: Literal["traced"]
    count: LayerCount = 1
    operators_of_sample: Annotated[tuple[TracedDocument, ...], Field(min_length=1, max_length=10**5)]
    parameters: Extent = 0
    role: Name = "traced"
    buffers: Extent = Field(default=0, description="Numbers that are kept and not trained.")
    tied_parameters: Extent = Field(default=0, description="Parameters that a layer before it owns.")
    output: VolumeDocument | None = Field(default=None, description="What layers after it are handed.")
    saved_input: VolumeDocument | None = Field(default=None, description="What it saves of its inputs.")
    other_input: VolumeDocument | None = Field(
        default=None, description="What has to be kept besides to run the layer a second time."
    )


LayerDocument = Annotated[
    EmbeddingLayerDocument
    | DecoderLayerDocument
    | BlockLayerDocument
    | PatchLayerDocument
    | AttentionPoolLayerDocument
    | ProjectorLayerDocument
    | PredictionLayerDocument
    | NormLayerDocument
    | HeadLayerDocument
    | ClassifierLayerDocument
    | ConvolutionalLayerDocument
    | PoolLayerDocument
    | LstmLayerDocument
    | TablesLayerDocument
    | InteractionLayerDocument
    | TracedLayerDocument,
    Field(discriminator="kind"),
]
