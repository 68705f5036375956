"""The chain of a job: which layers are trained, frozen or adapted, and the reference beside them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from planner.errors import InvalidRequest, UnknownName
from planner.job import Job, Loss, Trainable
from planner.names import nearest_names
from planner.workload.adapters import TARGETS, AdaptedLayer, Adapters
from planner.workload.embedding import EmbeddingLayer
from planner.workload.frozen import FrozenLayer
from planner.workload.layers import EMBEDDING, HEAD, NORM, VISION, Cut, Layer, LayerRun, Workload, runs_of
from planner.workload.patches import PatchLayer
from planner.workload.preference import PreferenceLayer
from planner.workload.streams import ImageStream

POINTER: Final = "/job/trainable"
FIRST_LAYERS: Final = (EmbeddingLayer, PatchLayer)
"""What reads tokens or pixels: nothing goes back beyond it."""
SMALL: Final = Cut(micro_batch_size=1, sequence_length=1)


def trained_workload(workload: Workload, job: Job, *, reference: Workload | None = None) -> Workload:
    """Return the chain with every layer trained as the job says, beside ``reference`` where its loss has one.

    None is the model itself. Raises InvalidRequest (UnknownName for kinds of layers and targets that nothing
    has) where nothing is left to train, or where a reference has other layers than the model.
    """
    _check_frozen_kinds(workload, job.trainable)
    trained = replace(workload, runs=tuple(_trained_runs(workload, job.trainable)))
    _check_something_is_trained(trained, job.trainable)
    if job.loss is not Loss.DPO:
        return trained
    return replace(trained, runs=tuple(_with_reference(workload, trained, job.trainable, reference)))


def _trained_runs(workload: Workload, trainable: Trainable) -> Iterator[LayerRun]:
    """Yield the runs of a chain as they are trained; before the first trained layer nothing goes back.

    That layer is taken to pass a gradient on all the same, so that equal layers stay equal.
    """
    is_later = False
    for run in workload.runs:
        layer = _trained_layer(run.layer, trainable, is_later=is_later)
        is_later = is_later or not isinstance(layer, FrozenLayer)
        yield LayerRun(layer=layer, count=run.count)


def _is_frozen(layer: Layer, trainable: Trainable) -> bool:
    """Whether a layer's kind is frozen; a norm of images goes with the vision tower that it stands in."""
    of_tower = layer.kind == NORM and isinstance(getattr(layer, "stream", None), ImageStream)
    return layer.kind in trainable.frozen or (of_tower and VISION in trainable.frozen)


def _trained_layer(layer: Layer, trainable: Trainable, *, is_later: bool) -> Layer:
    is_frozen = _is_frozen(layer, trainable)
    if not is_frozen and not trainable.has_adapters:
        return layer
    if not is_frozen and layer.kind not in {EMBEDDING, HEAD}:
        adapted = AdaptedLayer(
            layer=layer,
            adapters=Adapters(rank=trainable.rank, targets=trainable.targets),
            base_format=trainable.base_format,
        )
        if adapted.adapter_holdings(SMALL).parameters:
            return adapted
    return FrozenLayer(
        layer=layer,
        has_backward=is_later and not isinstance(layer, FIRST_LAYERS),
        base_format=trainable.base_format,
    )


def _check_frozen_kinds(workload: Workload, trainable: Trainable) -> None:
    kinds = tuple(dict.fromkeys(run.layer.kind for run in workload.runs))
    for index, kind in enumerate(trainable.frozen):
        if kind not in kinds:
            raise UnknownName(
                f"{workload.name} has no layers of kind {kind!r} to freeze",
                pointer=f"{POINTER}/frozen/{index}",
                nearest_legal=nearest_names(kind, kinds),
            )
    for index, target in enumerate(trainable.targets or ()):
        if target not in TARGETS:
            raise UnknownName(
                f"no product goes by the name {target!r}",
                pointer=f"{POINTER}/targets/{index}",
                nearest_legal=nearest_names(target, TARGETS),
            )


def _check_something_is_trained(workload: Workload, trainable: Trainable) -> None:
    if all(isinstance(run.layer, FrozenLayer) for run in workload.runs):
        what = "no product that can have adapters" if trainable.has_adapters else "nothing left to train"
        field = "targets" if trainable.has_adapters else "frozen"
        raise InvalidRequest(f"{workload.name} has {what}", pointer=f"{POINTER}/{field}")


def _with_reference(
    workload: Workload, trained: Workload, trainable: Trainable, reference: Workload | None
) -> Iterator[LayerRun]:
    """Yield the runs of the policy with the reference's layers beside them."""
    others = _layers((reference or workload).runs)
    own = _layers(trained.runs)
    if len(own) != len(others) or any(a.kind != b.kind for a, b in zip(own, others, strict=True)):
        raise InvalidRequest(
            f"the reference model must have as many layers of the same kinds as {workload.name}: each runs "
            "beside one of the model's",
            pointer="/job/reference_model",
        )
    shares = trainable.has_adapters and reference is None
    base_format = trainable.base_format if shares else None
    yield from runs_of(
        PreferenceLayer(
            layer=layer,
            reference=FrozenLayer(layer=other, has_backward=False, base_format=base_format),
            shares_weights=shares,
        )
        for layer, other in zip(own, others, strict=True)
    )


def _layers(runs: Sequence[LayerRun]) -> list[Layer]:
    return [run.layer for run in runs for _ in range(run.count)]
