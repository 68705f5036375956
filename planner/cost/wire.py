"""What the formats of gathers and reductions make of their bytes, and what converting to them takes."""

from dataclasses import dataclass, replace
from typing import Final

from planner.framework import Framework, StateWidths
from planner.job import Precision
from planner.strategy import Sharding
from planner.units import Bytes
from planner.wire import WireChoice, WireFormat, chosen

FP16_BYTES: Final = 2
"""What quantizing kernels that know FP16 alone read and write."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """The formats that replicas of a part send in; None for the framework's own.

    Converting reads and writes the device's memory. A quantized gather (qwZ) quantizes each rank's shard,
    sends it, and restores the whole of what has come. A quantized reduction (qgZ) exchanges shares within a
    node, adds them up and quantizes the sums anew, exchanges those between nodes, and adds up what has come:
    Wang et al., "ZeRO++" (2023), sections 3.1 and 3.3. Sent are a half of parameters in two bytes, a quarter
    of gradients.
    """

    gathers: WireChoice | None = None
    reduces: WireChoice | None = None
    compute: float
    """Bytes of a parameter as products read it."""
    gradient: float
    """Bytes of a gradient as it is accumulated."""
    in_fp16: bool = False
    """Whether the job's own format is FP16."""

    @property
    def exchanges(self) -> bool:
        """Whether reductions are exchanges of quantized sums."""
        return self.reduces is not None and self.reduces.exchanges

    def gathered(self, whole: Bytes) -> Bytes:
        """Return what gathers move of parameters that take so many bytes as products read them."""
        if self.gathers is None:
            return whole
        return self._values(whole) * self.gathers.format.bytes_per_value

    def reduced(self, trained: float) -> Bytes:
        """Return what reductions move of so many gradients."""
        if self.reduces is None or self.reduces.accumulates:
            return float(self.gradient * trained)
        return trained * self.reduces.format.bytes_per_value

    def gather_moves(self, whole: Bytes, *, group: int) -> Bytes:
        """Return what a rank reads and writes to convert what a group gathers, in every pass that does.

        Products read FP8 as it comes.
        """
        if self.gathers is None or group == 1:
            return 0.0
        values, sent = self._values(whole), self.gathers.format.bytes_per_value
        moved = (self.compute + sent) * values / group
        if not self.gathers.format.is_scaled:
            return moved
        moved += (sent + self.compute) * values
        # The shard before it is quantized, and the whole after it is restored.
        copied = self.compute + FP16_BYTES if self._copies(self.gathers) else 0.0
        return moved + copied * (values / group + values)

    def reduction_moves(self, trained: float, *, group: int, near: int) -> Bytes:
        """Return what a rank reads and writes to convert gradients of a group, ``near`` of it to a node."""
        if self.reduces is None or self.reduces.accumulates or group == 1:
            return 0.0
        sent = self.reduces.format.bytes_per_value
        if not self.exchanges:
            # Gradients leave their passes as wide as the framework's own, and are widened for the way.
            wider = sent > self.gradient
            return (self.gradient + sent) * (trained + trained / group) if wider else 0.0
        copied = (self.gradient + FP16_BYTES) * trained if self._copies(self.reduces) else 0.0
        wide = FP16_BYTES if self.reduces.through_fp16 else self.gradient
        quantized = (wide + sent) * trained
        summed = sent * trained + sent * trained / near
        restored = (sent + wide) * trained / near + wide * trained / near + self.gradient * trained / group
        return copied + quantized + summed + restored

    def staged(self, *, gathered_bytes: Bytes, trained: float, layers: int) -> Bytes:
        """Return what is on the device besides while ``layers`` layers are gathered and one is reduced.

        Of parameters that take so many bytes as products read them in a layer, and so many gradients.
        """
        staged = 0.0
        if self.gathers is not None and self.gathers.format.is_scaled:
            staged += layers * self.gathered(gathered_bytes)
            if self._copies(self.gathers):
                staged += FP16_BYTES * self._values(gathered_bytes)
        if self.exchanges and self.reduces is not None:
            # What is sent, and what comes.
            staged += 2 * self.reduced(trained)
            if self._copies(self.reduces):
                staged += FP16_BYTES * trained
        return staged

    @property
    def buffered_gradient(self) -> float:
        """Bytes of a gradient in the buffers that reductions are made from."""
        return self.gradient if self.exchanges else self.reduced(1.0)

    @property
    def at_ends(self) -> "Wire":
        """How embeddings and heads travel: their products are wide, so FP8 is not for them."""
        if self.gathers is None or self.gathers.format is not WireFormat.FP8:
            return self
        return replace(self, gathers=None)

    def _values(self, whole: Bytes) -> float:
        return whole / self.compute

    def _copies(self, choice: WireChoice) -> bool:
        return choice.through_fp16 and not self.in_fp16


def wire_of(framework: Framework, sharding: Sharding, widths: StateWidths, precision: Precision) -> Wire:
    """Return how the replicas of a part send under a sharding; a format of no choice is the default."""
    limits = framework.limits
    reduces = chosen(limits.reductions, sharding.reduce_dtype, sharding, precision)
    return Wire(
        gathers=chosen(limits.gathers, sharding.gather_dtype, sharding, precision),
        reduces=reduces,
        compute=widths.compute,
        gradient=widths.accumulating(reduces).gradient,
        in_fp16=precision is Precision.FP16,
    )
