"""The first layer of a vision model: patches of an image to tokens."""

from dataclasses import dataclass

from planner.units import Bytes, Flops
from planner.workload.layers import VISION, Cut, PlainLayer
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator, SavedTensor
from planner.workload.passes import dropout_mask
from planner.workload.sizes import require_flag, require_probability, require_size
from planner.workload.streams import ImageStream


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchLayer(PlainLayer):
    """A convolution whose kernel is as large as its stride, learned positions, perhaps a class token.

    ``frames`` is how many images one patch reaches through, ``positions`` the rows of the table of positions.
    """

    hidden: int
    stream: ImageStream
    role: str = VISION
    channels: int = 3
    frames: int = 1
    bias: bool = True
    positions: int = 0
    class_token: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("hidden", "channels", "frames"):
            require_size(name, getattr(self, name))
        require_size("positions", self.positions, smallest=0)
        require_flag("bias", self.bias)
        require_flag("class_token", self.class_token)
        require_probability("dropout", self.dropout)

    @property
    def kind(self) -> str:
        """Its role: vision, or embedding where nothing else embeds."""
        return self.role

    @property
    def parameters(self) -> int:
        """Kernel, bias, positions, class token."""
        return self.hidden * (self._pixels + self.bias + self.positions + self.class_token)

    def local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return all of them: patches are replicated."""
        return self.parameters

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:  # noqa: ARG002 - the Layer protocol
        """Return 2 per patch and weight of the kernel."""
        return 2.0 * self.stream.images * self.stream.patches * self.hidden * self._pixels

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of its output: the shard with sequence parallel."""
        return self.stream.cut(cut).activation_bytes(self.hidden)

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the product and the pass that adds positions; none without images."""
        own = self.stream.cut(cut)
        rows = own.micro_batch_size * self.stream.patches
        if not rows:
            return ()
        pixels = SavedTensor(name="pixels", size_bytes=own.element_bytes * rows * self._pixels, made_by=None)
        product = MatrixProduct(
            name="patches",
            module=Module.EMBEDDING,
            rows=rows,
            columns=self.hidden,
            inner=self._pixels,
            saved=(pixels,),
        )
        return (product, self._position_pass(own))

    def _position_pass(self, cut: Cut) -> MemoryPass:
        """Read tokens and write them with their positions, and their dropout."""
        elements = cut.local_tokens * self.hidden
        mask = dropout_mask(
            "patches_dropout", elements=elements, dropout=self.dropout, module=Module.EMBEDDING
        )
        moved = 2 * cut.element_bytes * elements + sum(tensor.size_bytes for tensor in mask)
        return MemoryPass(
            name="patch_positions",
            module=Module.EMBEDDING,
            kind="add",
            forward_bytes=moved,
            backward_bytes=moved,
            saved=mask,
        )

    @property
    def _pixels(self) -> int:
        """Numbers of one patch: channels, frames, and both sides."""
        return self.channels * self.frames * self.stream.patch_size**2
