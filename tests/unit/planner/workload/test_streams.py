import pytest

from planner.workload.layers import Cut
from planner.workload.streams import JOB, VECTORS, ImageStream, TextStream

CUT = Cut(
    micro_batch_size=2, sequence_length=4096, tensor_parallel=4, sequence_parallel=True, context_parallel=2
)


def test_the_jobs_own_sequences_are_cut_as_the_job_is() -> None:
    assert JOB.cut(CUT) == CUT
    assert (JOB.tokens(4096), JOB.sequences) == (4096, 1)


def test_the_decoders_side_has_its_own_length_and_remembers_the_encoders() -> None:
    cut = TextStream(is_target=True, length=512).cut(CUT)
    assert (cut.sequence_length, cut.memory_length, cut.context_parallel) == (512, 4096, 2)


@pytest.mark.parametrize(
    ("stream", "tokens"),
    [
        (ImageStream(image_size=224, patch_size=16, extra_tokens=1), 197),
        (ImageStream(image_size=336, patch_size=14), 576),
        (ImageStream(image_size=448, patch_size=14, merge=2), 256),
        (ImageStream(image_size=8, patch_size=16), 1),
    ],
)
def test_an_image_has_as_many_tokens_as_patches(stream: ImageStream, tokens: int) -> None:
    assert stream.tokens(4096) == tokens


def test_images_are_never_split() -> None:
    cut = ImageStream(image_size=224, patch_size=16, images=3).cut(CUT)
    assert (cut.micro_batch_size, cut.sequence_length) == (6, 196)
    assert (cut.tensor_parallel, cut.context_parallel, cut.sequence_parallel) == (4, 1, False)


def test_a_sample_that_is_one_vector_has_no_sequence_to_split() -> None:
    cut = VECTORS.cut(CUT)
    assert (cut.micro_batch_size, cut.sequence_length, cut.tensor_parallel) == (2, 1, 4)
    assert (cut.context_parallel, cut.sequence_parallel) == (1, False)
    assert (VECTORS.tokens(4096), VECTORS.sequences) == (1, 1)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"image_size": 0, "patch_size": 16}, "image_size"),
        ({"image_size": 224, "patch_size": 0.5}, "patch_size"),
        ({"image_size": 224, "patch_size": 16, "images": -1}, "images"),
        ({"image_size": 224, "patch_size": 16, "merge": None}, "merge"),
    ],
)
def test_nonsense_is_refused(fields: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ImageStream(**fields)


def test_a_length_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="length"):
        TextStream(length=0)
