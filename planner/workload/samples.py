"""What a sample of the job holds, written into the layers that work on it: images, the decoder's length."""

from collections.abc import Callable
from dataclasses import replace

from planner.workload.layers import Layer, LayerRun, Workload
from planner.workload.streams import ImageStream, Stream, TextStream, VectorStream
from planner.workload.traced import TracedLayer


def with_samples(
    workload: Workload,
    *,
    images: int | None = None,
    image_size: int | None = None,
    target_length: int | None = None,
) -> Workload:
    """Return a workload whose samples hold so many images of such a side, and so long a decoder's sequence.

    None leaves what the model was read with. Raises ValueError for numbers that cannot be meant.
    """

    def changed(stream: Stream) -> Stream:
        if isinstance(stream, ImageStream):
            new_images = stream.images if images is None else images
            return replace(stream, images=new_images, image_size=image_size or stream.image_size)
        if isinstance(stream, TextStream) and stream.is_target:
            return replace(stream, length=target_length or stream.length)
        return stream

    runs = (LayerRun(layer=_streamed(run.layer, changed), count=run.count) for run in workload.runs)
    return replace(workload, runs=tuple(runs))


def _streamed(layer: Layer, changed: Callable[[Stream], Stream]) -> Layer:
    stream = getattr(layer, "stream", None)
    if not isinstance(stream, ImageStream | TextStream):  # vectors have nothing to change
        return layer
    replaced: Layer = replace(layer, stream=changed(stream))  # type: ignore[type-var]  # layers are dataclasses
    return replaced


def has_sequence(workload: Workload) -> bool:
    """Tell whether a workload's samples hold a sequence: images, single vectors, traced samples are none."""
    return not all(
        isinstance(run.layer, TracedLayer)
        or isinstance(getattr(run.layer, "stream", None), ImageStream | VectorStream)
        for run in workload.runs
    )
