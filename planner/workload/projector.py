"""Linear maps one after the other, token by token: what joins parts of a model of different widths."""

from dataclasses import dataclass
from itertools import pairwise

from planner.units import Bytes, Flops
from planner.workload.layers import PROJECTOR, Cut, PlainLayer
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator, SavedTensor
from planner.workload.passes import Norm, norm_pass, replicated_product
from planner.workload.sizes import UnfitValue, require_flag, require_size, require_word
from planner.workload.streams import JOB, Stream


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectorLayer(PlainLayer):
    """Maps from the first of ``widths`` on to the last, an activation after each but the last.

    ``norm`` stands before them, over ``norm_width`` channels (the first width where None; a merger
    normalises tokens before it joins them), ``output_norm`` after them. With ``activates_output`` the
    last map has its activation too. The weights are replicated: every device maps its own tokens.
    """

    widths: tuple[int, ...]
    role: str = PROJECTOR
    bias: bool = False
    norm: Norm | None = None
    norm_width: int | None = None
    output_norm: Norm | None = None
    activates_output: bool = False
    stream: Stream = JOB

    def __post_init__(self) -> None:
        if len(self.widths) < 2:  # noqa: PLR2004 - from one width to another
            raise UnfitValue("widths", f"({list(self.widths)}) must be at least two")
        for width in self.widths:
            require_size("widths", width)
        require_flag("bias", self.bias)
        require_flag("activates_output", self.activates_output)
        if self.norm_width is not None:
            require_size("norm_width", self.norm_width)
        for name in ("norm", "output_norm"):
            if getattr(self, name) is not None:
                require_word(name, getattr(self, name), Norm)

    @property
    def kind(self) -> str:
        """Its role: projector, or whatever a model calls it."""
        return self.role

    @property
    def parameters(self) -> int:
        """Weights, biases and norms."""
        maps = sum(inner * outer + self.bias * outer for inner, outer in pairwise(self.widths))
        before = self.norm.parameters_per_channel * self._norm_width if self.norm else 0
        after = self.output_norm.parameters_per_channel * self.widths[-1] if self.output_norm else 0
        return maps + before + after

    def local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return all of them."""
        return self.parameters

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return 2 per token and weight."""
        tokens = self.stream.sequences * self.stream.tokens(sequence_length)
        return 2.0 * tokens * sum(inner * outer for inner, outer in pairwise(self.widths))

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of its output: the shard with sequence parallel."""
        return self.stream.cut(cut).activation_bytes(self.widths[-1])

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order; none without images."""
        own = self.stream.cut(cut)
        if not own.micro_batch_size:
            return ()
        last = len(self.widths) - 2
        maps = (self._map(place, own, is_last=place == last) for place in range(last + 1))
        return (
            *self._norm(f"{self.role}_norm", self.norm, self.widths[0], None, own),
            *(operator for operators in maps for operator in operators),
            *self._norm(f"{self.role}_output_norm", self.output_norm, self.widths[-1], Module.MLP, own),
        )

    def _map(self, place: int, cut: Cut, *, is_last: bool) -> tuple[MatrixProduct | MemoryPass, ...]:
        inner, outer = self.widths[place : place + 2]
        name = f"{self.role}_{place}"
        first_from = Module.NORM if self.norm else None
        made_by = first_from if place == 0 else Module.MLP
        product = replicated_product(name, Module.MLP, columns=outer, inner=inner, cut=cut, made_by=made_by)
        if is_last and not self.activates_output:
            return (product,)
        return (product, self._activation(f"{name}_activation", outer, cut))

    def _activation(self, name: str, width: int, cut: Cut) -> MemoryPass:
        size_bytes = cut.element_bytes * cut.sharded_tokens * width
        return MemoryPass(
            name=name,
            module=Module.MLP,
            kind="gelu",
            forward_bytes=2 * size_bytes,
            backward_bytes=3 * size_bytes,
            saved=(SavedTensor(name=f"{name}_input", size_bytes=size_bytes, made_by=Module.MLP),),
        )

    def _norm(
        self, name: str, norm: Norm | None, width: int, made_by: Module | None, cut: Cut
    ) -> tuple[MemoryPass, ...]:
        """Return a norm over all the channels of a token; a merger's tokens are as many channels in all."""
        return () if norm is None else (norm_pass(name, norm, hidden=width, cut=cut, made_by=made_by),)

    @property
    def _norm_width(self) -> int:
        return self.norm_width or self.widths[0]
