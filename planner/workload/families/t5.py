"""T5: an encoder and a decoder that attends to it, relative positions learned by each stack's first layer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.workload.block import BlockLayer
from planner.workload.classifier import ClassifierLayer
from planner.workload.config_keys import ConfigKeys
from planner.workload.cross_attention import CrossAttention
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer, NormLayer
from planner.workload.families.decoder_only import ACTIVATIONS, MAX_POSITIONS, Chain
from planner.workload.layers import DECODER, ENCODER, Layer, runs_of
from planner.workload.mlp import Mlp
from planner.workload.self_attention import SelfAttention
from planner.workload.sizes import MAX_COUNT
from planner.workload.streams import JOB, Stream, TextStream

TARGET: Final = TextStream(is_target=True)
WHOLE: Final = ("T5ForConditionalGeneration", "T5WithLMHeadModel")
ENCODER_ONLY: Final = ("T5EncoderModel", "T5ForTokenClassification")
OTHERS: Final = ("T5Model", "T5ForSequenceClassification", "T5ForQuestionAnswering")
T5_OTHER_NAMES: Final = {
    "d_model": "hidden_size",
    "num_heads": "num_attention_heads",
    "num_layers": "num_hidden_layers",
    "d_kv": "head_dim",
}
WITHOUT_COST: Final = (
    "relative_attention_max_distance", "classifier_dropout", "is_decoder", "is_encoder_decoder",
    "dense_act_fn", "is_gated_act", "scale_decoder_outputs", "output_past", "tie_word_embeddings",
    "feed_forward_proj_act",
)  # fmt: skip
"""No shape depends on them; the head is tied to the embedding whatever a file says, as the class has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """The branches that both stacks are made of."""

    attention: SelfAttention
    cross: CrossAttention
    mlp: Mlp
    relative_buckets: int
    dropout: float

    def stack(self, depth: int, *, is_decoder: bool) -> list[Layer]:
        """Return one stack's blocks, of which the first learns the relative positions."""
        plain = replace(self.attention, causal=is_decoder)
        learning = replace(plain, relative_buckets=self.relative_buckets)
        first, later = (self._block(kind, is_decoder=is_decoder) for kind in (learning, plain))
        return [first, *[later] * (depth - 1)]

    def _block(self, attention: SelfAttention, *, is_decoder: bool) -> BlockLayer:
        return BlockLayer(
            branches=(attention, self.cross, self.mlp) if is_decoder else (attention, self.mlp),
            role=DECODER if is_decoder else ENCODER,
            dropout=self.dropout,
            stream=TARGET if is_decoder else JOB,
        )


def read_t5(keys: ConfigKeys) -> Chain:
    """Read a ``t5`` config with the defaults of T5Config: encoder, decoder and a language model's head."""
    parts = _parts(keys)
    hidden, vocabulary = parts.mlp.hidden, keys.size("vocab_size", 32128)
    depth = keys.size("num_layers", 6, largest=MAX_COUNT)
    decoder_depth = keys.size("num_decoder_layers", depth, null=depth, largest=MAX_COUNT)
    keys.ignore(*WITHOUT_COST)
    named = keys.architecture((*WHOLE, *ENCODER_ONLY, *OTHERS)) or WHOLE[0]
    embedding = EmbeddingLayer(vocabulary=vocabulary, hidden=hidden, dropout=parts.dropout)
    layers: list[Layer] = [embedding, *parts.stack(depth, is_decoder=False), NormLayer(hidden=hidden)]
    if named not in ENCODER_ONLY:
        layers += [
            replace(embedding, shared=True, stream=TARGET),
            *parts.stack(decoder_depth, is_decoder=True),
            NormLayer(hidden=hidden, stream=TARGET),
        ]
    layers += _head(keys, named, vocabulary=vocabulary, hidden=hidden)
    longest = keys.size("n_positions", 512, largest=MAX_POSITIONS) if keys.has("n_positions") else None
    return Chain(runs=runs_of(layers), sequence_length=longest)


def _parts(keys: ConfigKeys) -> Parts:
    hidden, heads, head_dim = keys.size("d_model", 512), keys.size("num_heads", 8), keys.size("d_kv", 64)
    dropout = keys.probability("dropout_rate", 0.1)
    attention = SelfAttention(
        hidden=hidden, heads=heads, kv_heads=heads, head_dim=head_dim, rotary=False, dropout=dropout
    )
    return Parts(
        attention=attention,
        cross=CrossAttention(hidden=hidden, heads=heads, head_dim=head_dim, dropout=dropout),
        mlp=Mlp(hidden=hidden, ffn=keys.size("d_ff", 2048), gated=_is_gated(keys), dropout=dropout),
        relative_buckets=keys.size("relative_attention_num_buckets", 32),
        dropout=dropout,
    )


def _is_gated(keys: ConfigKeys) -> bool:
    """Tell whether ``feed_forward_proj`` names a gate before its activation."""
    known = {*ACTIVATIONS, *(f"gated-{activation}" for activation in ACTIVATIONS)}
    return keys.choice("feed_forward_proj", "relu", known).startswith("gated-")


def _head(keys: ConfigKeys, named: str, *, vocabulary: int, hidden: int) -> Sequence[Layer]:
    def classifier(classes: int, stream: Stream, *, pooler: bool = False) -> list[Layer]:
        layer = ClassifierLayer(
            hidden=hidden, classes=classes, bias=True, pooler=pooler, per_token=not pooler, stream=stream
        )
        return [layer]

    match named:
        case "T5ForTokenClassification":
            return classifier(keys.classes(), JOB)
        case "T5ForQuestionAnswering":
            return classifier(2, TARGET)
        case "T5ForSequenceClassification":
            return classifier(keys.classes(), TARGET, pooler=True)
        case "T5Model" | "T5EncoderModel":
            return ()
        case _:
            return [HeadLayer(vocabulary=vocabulary, hidden=hidden, tied=True, stream=TARGET)]
