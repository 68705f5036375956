"""BERT and RoBERTa: encoders with norms after sums, and the many heads that are put on them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from planner.workload.block import Arrangement, BlockLayer
from planner.workload.classifier import ClassifierLayer
from planner.workload.config_keys import ConfigKeys
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer
from planner.workload.families.decoder_only import ACTIVATIONS, Chain
from planner.workload.families.plain_attention import plain_attention
from planner.workload.layers import ENCODER, Layer, runs_of
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.projector import ProjectorLayer
from planner.workload.sizes import MAX_COUNT

WITHOUT_COST: Final = (
    "classifier_dropout", "position_embedding_type", "directionality", "pooler_fc_size",
    "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
)  # fmt: skip
ROBERTA_OFFSET: Final = 2
"""The table of positions begins two rows late, and holds two more than a sequence is long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """What a head is made of: sizes, and the keys that say how many classes it tells apart."""

    keys: ConfigKeys
    vocabulary: int
    hidden: int
    is_tied: bool

    def language(self) -> tuple[Layer, ...]:
        """Return the transform and the logits of a masked (or causal) language model."""
        transform = ProjectorLayer(
            widths=(self.hidden, self.hidden),
            role="transform",
            bias=True,
            activates_output=True,
            output_norm=Norm.LAYER,
        )
        return (
            transform,
            HeadLayer(vocabulary=self.vocabulary, hidden=self.hidden, tied=self.is_tied, bias=True),
        )

    def pooled(self, classes: int) -> tuple[Layer, ...]:
        """Return a pooler with so many classes, none for 0."""
        return (ClassifierLayer(hidden=self.hidden, classes=classes, pooler=True, bias=classes > 0),)

    def tokens(self, classes: int) -> tuple[Layer, ...]:
        """Return classes of every token."""
        return (ClassifierLayer(hidden=self.hidden, classes=classes, bias=True, per_token=True),)


HEADS: Final[dict[str, Callable[[Ends], tuple[Layer, ...]]]] = {
    "Model": lambda ends: ends.pooled(0),
    "ForMaskedLM": Ends.language,
    "LMHeadModel": Ends.language,
    "ForCausalLM": Ends.language,
    "ForPreTraining": lambda ends: (*ends.pooled(2), *ends.language()),
    "ForNextSentencePrediction": lambda ends: ends.pooled(2),
    "ForSequenceClassification": lambda ends: ends.pooled(ends.keys.classes()),
    "ForMultipleChoice": lambda ends: ends.pooled(1),
    "ForTokenClassification": lambda ends: ends.tokens(ends.keys.classes()),
    "ForQuestionAnswering": lambda ends: ends.tokens(2),
}
"""The layers of a head, by the ending of its class's name; a language model where a file names none."""


def read_bert(keys: ConfigKeys) -> Chain:
    """Read a ``bert`` config with the defaults of BertConfig."""
    return _encoder(keys, vocabulary=30522, positions_before=0, prefix="Bert")


def read_roberta(keys: ConfigKeys) -> Chain:
    """Read a ``roberta`` config with the defaults of RobertaConfig."""
    return _encoder(keys, vocabulary=50265, positions_before=ROBERTA_OFFSET, prefix="Roberta")


def _encoder(keys: ConfigKeys, *, vocabulary: int, positions_before: int, prefix: str) -> Chain:
    if keys.flag("add_cross_attention", default=False):
        keys.refuse("add_cross_attention", "an encoder alone has nothing to attend across to")
    keys.ignore(*WITHOUT_COST)
    keys.expect("is_encoder_decoder", False)  # noqa: FBT003 - the value that changes nothing
    dropout = keys.probability("hidden_dropout_prob", 0.1)
    embedding = EmbeddingLayer(
        vocabulary=keys.size("vocab_size", vocabulary),
        hidden=keys.size("hidden_size", 768),
        positions=keys.size("max_position_embeddings", 512),
        types=keys.count("type_vocab_size", 2),
        norm=Norm.LAYER,
        dropout=dropout,
    )
    depth = keys.size("num_hidden_layers", 12, largest=MAX_COUNT)
    blocks = [_block(keys, hidden=embedding.hidden, dropout=dropout)] * depth
    is_tied = keys.flag("tie_word_embeddings", default=True)
    if not is_tied:
        keys.assume("tie_word_embeddings")  # the class keeps a second bias then, which nothing uses
    ends = Ends(keys=keys, vocabulary=embedding.vocabulary, hidden=embedding.hidden, is_tied=is_tied)
    heads = {f"{prefix}{ending}": make for ending, make in HEADS.items()}
    head = heads[keys.architecture(heads) or f"{prefix}ForMaskedLM"](ends)
    longest = max(1, embedding.positions - positions_before)
    return Chain(runs=runs_of((embedding, *blocks, *head)), sequence_length=longest)


def _block(keys: ConfigKeys, *, hidden: int, dropout: float) -> BlockLayer:
    keys.choice("hidden_act", "gelu", ACTIVATIONS)
    attention = plain_attention(
        keys,
        hidden=hidden,
        heads_by_default=12,
        causal=keys.flag("is_decoder", default=False),
        qkv_bias=True,
        output_bias=True,
        dropout=keys.probability("attention_probs_dropout_prob", 0.1),
    )
    mlp = Mlp(hidden=hidden, ffn=keys.size("intermediate_size", 3072), gated=False, bias=True)
    return BlockLayer(
        branches=(attention, mlp),
        role=ENCODER,
        norm=Norm.LAYER,
        arrangement=Arrangement.POST,
        dropout=dropout,
    )
