"""Which head a config's ``architectures`` names, and the end of the chain that it makes."""

from enum import Enum
from typing import Final

from planner.workload.classifier import ClassifierLayer
from planner.workload.config_keys import ConfigKeys
from planner.workload.ends import HeadLayer
from planner.workload.layers import Layer

SPAN_ENDS: Final = 2
"""Question answering marks where a span begins and where it ends."""


class Head(Enum):
    """What stands on top of a model, by the ending of its class's name."""

    LANGUAGE = ("ForCausalLM", "LMHeadModel")
    NONE = ("Model",)
    SEQUENCE_CLASSES = ("ForSequenceClassification",)
    TOKEN_CLASSES = ("ForTokenClassification",)
    SPANS = ("ForQuestionAnswering",)


def read_head(keys: ConfigKeys, *prefixes: str) -> Head:
    """Return the head that ``architectures`` names for the classes of a family; a language model by default.

    A class that the family does not have counts as not understood.
    """
    heads = {f"{prefix}{ending}": head for prefix in prefixes for head in Head for ending in head.value}
    named = keys.architecture(heads)
    return Head.LANGUAGE if named is None else heads[named]


def head_layers(
    keys: ConfigKeys, head: Head, *, vocabulary: int, hidden: int, is_tied: bool, bias: bool = False
) -> tuple[Layer, ...]:
    """Return the layers of a head on a decoder: none, logits, or classes of samples or tokens."""
    match head:
        case Head.NONE:
            return ()
        case Head.LANGUAGE:
            return (HeadLayer(vocabulary=vocabulary, hidden=hidden, tied=is_tied, bias=bias),)
        case Head.SEQUENCE_CLASSES:
            return (ClassifierLayer(hidden=hidden, classes=keys.classes()),)
        case Head.TOKEN_CLASSES:
            return (ClassifierLayer(hidden=hidden, classes=keys.classes(), bias=True, per_token=True),)
        case Head.SPANS:
            return (ClassifierLayer(hidden=hidden, classes=SPAN_ENDS, bias=True, per_token=True),)


def named_head(
    keys: ConfigKeys,
    *prefixes: str,
    vocabulary: int,
    hidden: int,
    tied_by_default: bool = False,
    bias: bool = False,
) -> tuple[Layer, ...]:
    """Return the layers of the head that ``architectures`` names, tied as ``tie_word_embeddings`` says."""
    return head_layers(
        keys,
        read_head(keys, *prefixes),
        vocabulary=vocabulary,
        hidden=hidden,
        is_tied=keys.flag("tie_word_embeddings", default=tied_by_default),
        bias=bias,
    )
