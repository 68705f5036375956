"""Which layers fit one another in a chain."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from planner.errors import InvalidRequest
from planner.workload.ends import EmbeddingLayer, HeadLayer, NormLayer
from planner.workload.layers import LayerRun
from planner.workload.transformer import DecoderLayer

Complaint = tuple[str, str]
"""Where under the list of layers, and what is wrong."""


def check_chain(runs: Sequence[LayerRun], *, pointer: str) -> None:
    """Refuse layers that do not make one decoder-only model, with InvalidRequest under ``pointer``."""
    for rule in RULES:
        for where, message in rule(runs):
            raise InvalidRequest(message, pointer=f"{pointer}{where}")


def _has_decoder(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    if not any(isinstance(run.layer, DecoderLayer) for run in runs):
        yield "", "the chain needs a layer of kind decoder"


def _ends_stand_at_the_ends(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    last = len(runs) - 1
    for index, run in enumerate(runs):
        if not isinstance(run.layer, EmbeddingLayer | HeadLayer):
            continue
        place = 0 if isinstance(run.layer, EmbeddingLayer) else last
        if index != place:
            yield f"/{index}/kind", f"the {run.layer.kind} must be layer {place} of the list"
        if run.count != 1:
            yield f"/{index}/count", f"count ({run.count}) must be 1 for the {run.layer.kind}"


def _widths_agree(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    widths = [_hidden(run) for run in runs]
    for index, width in enumerate(widths):
        if width != widths[0]:
            yield f"/{index}/hidden", f"hidden ({width}) must be that of the first layer ({widths[0]})"


def _tied_head_has_its_embedding(runs: Sequence[LayerRun]) -> Iterable[Complaint]:
    first, last, index = runs[0].layer, runs[-1].layer, len(runs) - 1
    if not isinstance(last, HeadLayer) or not last.tied:
        return
    if not isinstance(first, EmbeddingLayer):
        yield f"/{index}/tied", "a tied head needs an embedding to share its weight with"
    elif first.vocabulary != last.vocabulary:
        message = (
            f"vocabulary ({last.vocabulary}) of a tied head must be the embedding's ({first.vocabulary})"
        )
        yield f"/{index}/vocabulary", message


def _hidden(run: LayerRun) -> int:
    assert isinstance(run.layer, EmbeddingLayer | DecoderLayer | NormLayer | HeadLayer)
    return run.layer.hidden


RULES: Final[tuple[Callable[[Sequence[LayerRun]], Iterable[Complaint]], ...]] = (
    _has_decoder,
    _ends_stand_at_the_ends,
    _widths_agree,
    _tied_head_has_its_embedding,
)
