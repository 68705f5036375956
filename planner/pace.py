"""How the kernels, collectives and host of a training program compare with measured ones."""

from dataclasses import dataclass
from typing import Final

from planner.units import Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramPace:
    """What a running step of a training program takes beside the kernels and links measured alone.

    Every default is neutral: the program runs as the measurements say, on a host that takes no time.
    `planner.parameters` says what each effect is and holds the values.
    """

    products: float = 1.0
    attention_ampere: float = 1.0
    attention_hopper: float = 1.0
    memory_passes: float = 1.0
    unfused_attention: float = 1.0
    misaligned_attention: float = 1.0
    sink_attention: float = 1.0
    tensor_parallel: float = 1.0
    expert_parallel: float = 1.0
    data_parallel: float = 1.0
    crossing_seconds: Seconds = 0.0
    launch_seconds: Seconds = 0.0
    pipelined_launch_seconds: Seconds = 0.0
    serial_host_fraction: float = 0.0
    pass_seconds: Seconds = 0.0
    step_seconds: Seconds = 0.0
    spread: float = 1.0
    stalled_send_seconds: Seconds = 0.0

    def attention(self, generation: str) -> float:
        """Return the pace of fused attention on a generation of devices."""
        paces = {"ampere": self.attention_ampere, "hopper": self.attention_hopper}
        return paces.get(generation, 1.0)

    def of_axis(self, axis: str) -> float:
        """Return the pace of collectives inside a layer over the ranks of a mesh axis."""
        paces = {"tensor_parallel": self.tensor_parallel, "expert_parallel": self.expert_parallel}
        return paces.get(axis, 1.0)


AS_MEASURED: Final = ProgramPace()
