"""What a layer works on: the job's own sequences, the decoder's side of a pair, images, or single vectors."""

from dataclasses import dataclass, replace
from typing import Final

from planner.workload.layers import Cut
from planner.workload.sizes import MAX_COUNT, UnfitValue, require_flag, require_size

MAX_PIXELS: Final = 10**6
"""Above any image side that can be meant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextStream:
    """One sequence per sample: of the job's length, or where ``is_target`` of the decoder's own ``length``.

    None is the job's length. ``is_target`` marks the decoder's side of an encoder-decoder.
    """

    is_target: bool = False
    length: int | None = None

    def __post_init__(self) -> None:
        require_flag("is_target", self.is_target)
        if self.length is not None:
            require_size("length", self.length, largest=2**31)

    @property
    def sequences(self) -> int:
        """Sequences of one sample."""
        return 1

    def tokens(self, sequence_length: int) -> int:
        """Return the tokens of one sequence, given the job's length."""
        return sequence_length if self.length is None else self.length

    def cut(self, cut: Cut) -> Cut:
        """Return the cut of a layer of this stream, given that of the job."""
        if self.length is None:
            return cut
        return replace(cut, sequence_length=self.length, memory_length=cut.sequence_length)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageStream:
    """``images`` square images per sample, each cut into patches of ``patch_size`` pixels.

    ``merge`` x ``merge`` patches make one token, and ``extra_tokens`` (a class token) stand beside
    them. Neither context nor sequence parallel splits an image: every rank of those works on all of it.
    """

    image_size: int
    patch_size: int
    merge: int = 1
    extra_tokens: int = 0
    images: int = 1

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size", "merge"):
            require_size(name, getattr(self, name), largest=MAX_PIXELS)
        require_size("extra_tokens", self.extra_tokens, smallest=0, largest=MAX_COUNT)
        require_size("images", self.images, smallest=0, largest=MAX_PIXELS)

    @property
    def sequences(self) -> int:
        """Sequences of one sample."""
        return self.images

    @property
    def patches(self) -> int:
        """Patches of one image, before any are merged."""
        return max(1, self.image_size // self.patch_size) ** 2

    def merged(self, merge: int) -> "ImageStream":
        """Return the same images with ``merge`` x ``merge`` patches to a token, and those tokens alone."""
        return replace(self, merge=merge, extra_tokens=0)

    def tokens(self, sequence_length: int) -> int:  # noqa: ARG002 - as a TextStream
        """Return the tokens of one image; the job's length plays no part."""
        side = max(1, self.image_size // self.patch_size // self.merge)
        return side**2 + self.extra_tokens

    def cut(self, cut: Cut) -> Cut:
        """Return the cut of a layer of this stream, given that of the job."""
        return replace(
            cut.unsplit,
            micro_batch_size=cut.micro_batch_size * self.images,
            sequence_length=self.tokens(cut.sequence_length),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorStream:
    """One vector per sample, as recommendation models have: there is no sequence to split."""

    @property
    def sequences(self) -> int:
        """One vector of one sample."""
        return 1

    def tokens(self, sequence_length: int) -> int:  # noqa: ARG002 - as a TextStream
        """Return one; the job's length plays no part."""
        return 1

    def cut(self, cut: Cut) -> Cut:
        """Return the cut of a layer of this stream, given that of the job."""
        return replace(cut.unsplit, sequence_length=1)


Stream = TextStream | ImageStream | VectorStream


def require_images(name: str, value: object) -> None:
    """Refuse a stream that holds no images with UnfitValue."""
    if not isinstance(value, ImageStream):
        raise UnfitValue(name, "must be of images")


VECTORS: Final = VectorStream()
"""One vector per sample."""
JOB: Final = TextStream()
"""The job's own sequences."""
