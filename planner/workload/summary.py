"""What a model consists of, in the words of ``meshplan models show``."""

from dataclasses import dataclass

from planner.units import Flops
from planner.workload.layers import LayerRun, Workload
from planner.workload.samples import has_sequence
from planner.workload.sizes import require_size

MAX_SEQUENCE_LENGTH = 2**31
"""Above any sequence that can be meant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSummary:
    """``count`` equal layers in a row; the figures are those of one of them.

    FLOP are null where no sequence length is known.
    """

    kind: str
    count: int
    parameters: int
    forward_flops_per_sample: Flops | None
    forward_flops_per_token: Flops | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSummary:
    """A model's name, counts and layers.

    Its parameters are the sum of count times parameters, those of extra prediction layers (``mtp``) left
    out: they are ``prediction_parameters``. ``active_parameters`` work on any one token; ``buffers`` are
    kept and not trained.
    """

    name: str
    family: str
    parameters: int
    active_parameters: int
    layers: tuple[LayerSummary, ...]
    not_understood: tuple[str, ...]
    prediction_parameters: int = 0
    buffers: int = 0


def model_summary(workload: Workload, *, sequence_length: int | None = None) -> ModelSummary:
    """Return the summary at a sequence length, by default the longest that the model was made for.

    Raises ValueError for a sequence length that is none.
    """
    if sequence_length is not None:
        require_size("sequence_length", sequence_length, largest=MAX_SEQUENCE_LENGTH)
    length = sequence_length or workload.default_sequence_length
    is_long = has_sequence(workload)
    return ModelSummary(
        name=workload.name,
        family=workload.family,
        parameters=workload.parameters,
        active_parameters=workload.active_parameters,
        layers=tuple(_layer_summary(run, length, is_long=is_long) for run in workload.runs),
        not_understood=workload.not_understood,
        prediction_parameters=workload.prediction_parameters,
        buffers=workload.buffers,
    )


def _layer_summary(run: LayerRun, sequence_length: int | None, *, is_long: bool) -> LayerSummary:
    """Return one run's figures; a model without a sequence has them per sample alone."""
    length = sequence_length if is_long else 1
    flops = None if length is None else run.layer.forward_flops_per_sample(length)
    return LayerSummary(
        kind=run.layer.kind,
        count=run.count,
        parameters=run.layer.parameters,
        forward_flops_per_sample=flops,
        forward_flops_per_token=flops / length if flops is not None and length and is_long else None,
    )
