"""The model of a row: its sizes from the columns, its family's habits from its name."""

from dataclasses import replace
from typing import Final

from planner.validation.architectures import architecture_of, described_workload
from planner.validation.families import LLAMA, Family, family_of
from planner.validation.rows import Reader, UnusableRow
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer, NormLayer
from planner.workload.layers import LayerRun, Workload
from planner.workload.transformer import DecoderLayer

PARAMETERS_PER_BILLION: Final = 1e9
SAME_COUNT_FRACTION: Final = 0.01
"""How far a printed parameter count may lie from the true one: it tells a tied head from an own one."""
PLAIN_WIDTH: Final = 4
"""Width of an MLP without a gate over the hidden size, where a row leaves it unsaid."""


def workload_of(reader: Reader) -> Workload:
    """Return the model of a row; UnusableRow where sizes are missing or its kind cannot be priced."""
    architecture = architecture_of(reader.row.text("model"))
    if architecture is not None:
        return described_workload(reader, architecture)
    family = _family(reader)
    layers, hidden = reader.required("layers"), reader.required("hidden")
    decoder = _decoder(reader, family, hidden=hidden)
    vocabulary, length = reader.required("vocab"), reader.required("seq_len")
    embedding = EmbeddingLayer(
        vocabulary=vocabulary,
        hidden=hidden,
        positions=length if family.learned_positions else 0,
        dropout=family.dropout,
        norm=family.norm if family.embedding_norm else None,
    )
    workload = Workload(
        name=reader.row.text("model") or "unnamed",
        family="row",
        runs=(
            LayerRun(layer=embedding, count=1),
            LayerRun(layer=decoder, count=layers),
            LayerRun(layer=NormLayer(hidden=hidden, norm=family.norm), count=1),
            LayerRun(layer=HeadLayer(vocabulary=vocabulary, hidden=hidden, tied=family.tied), count=1),
        ),
        default_sequence_length=length,
    )
    return _with_counted_head(reader, workload)


def _family(reader: Reader) -> Family:
    family = family_of(reader.row.text("model"))
    if (reader.row.whole("experts") or 0) > 1:
        raise UnusableRow(_no_config("layers of experts"))
    if family is None:
        return reader.default("model", LLAMA)
    if family.undescribed:
        raise UnusableRow(_no_config(family.undescribed))
    return family


def _decoder(reader: Reader, family: Family, *, hidden: int) -> DecoderLayer:
    heads = reader.required("heads")
    if hidden % heads:
        raise UnusableRow("hidden is no multiple of heads, and no column gives the head's width")
    kv_heads = reader.whole("kv_heads", default=heads)
    if not kv_heads or heads % kv_heads:
        raise UnusableRow("heads is no multiple of kv_heads")
    return DecoderLayer(
        hidden=hidden,
        ffn=_ffn(reader, family, hidden=hidden),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        norm=family.norm,
        gated=family.gated,
        rotary=family.rotary,
        qkv_bias=family.biases or family.qkv_bias,
        output_bias=family.biases,
        mlp_bias=family.biases,
        attention_dropout=family.dropout,
        hidden_dropout=family.dropout,
    )


def _ffn(reader: Reader, family: Family, *, hidden: int) -> int:
    if family.gated:
        return reader.required("ffn_hidden")
    return reader.whole("ffn_hidden", default=PLAIN_WIDTH * hidden)


def _with_counted_head(reader: Reader, workload: Workload) -> Workload:
    """Return the model with its head tied or not, as the row's parameter count decides where it can."""
    billions = reader.row.number("params_b")
    choices = [_with_head(workload, tied=tied) for tied in (False, True)]
    if billions is None:
        return workload
    counted = billions * PARAMETERS_PER_BILLION
    fitting = [choice for choice in choices if abs(choice.parameters / counted - 1) <= SAME_COUNT_FRACTION]
    return fitting[0] if len(fitting) == 1 else workload


def _with_head(workload: Workload, *, tied: bool) -> Workload:
    *others, last = workload.runs
    assert isinstance(last.layer, HeadLayer)
    return replace(workload, runs=(*others, replace(last, layer=replace(last.layer, tied=tied))))


def _no_config(part: str) -> str:
    return f"no config of the model is known, and no column describes its {part}"
