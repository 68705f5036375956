"""How the kernels, collectives and host of a training program compare with measured ones."""

from dataclasses import dataclass
from typing import Final

from planner.units import Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramPace:
    """What a running step of a training program takes beside the kernels and links measured alone.

    Every default is neutral: the program runs as the measurements say.
    """

    products: float = 1.0
    """Time of matrix products over measured ones: what runs between and beside them costs clock and cache."""
    tensor_parallel: float = 1.0
    """Visible time of tensor-parallel collectives over measured ones."""
    expert_parallel: float = 1.0
    """Visible time of the collectives that bring tokens to experts and back, over measured ones."""
    data_parallel: float = 1.0
    """Time of gradient reductions and parameter gathers over measured collectives."""
    unfused_attention: float = 1.0
    """Time of the passes of an unfused attention core over those of the fused softmax."""
    loss_passes: float = 1.0
    """Time of the passes over logits and loss over those of PyTorch's own kernels."""
    serial_host_fraction: float = 0.0
    """Share of the host's launch time that no kernel hides: 1 where every launch waits for the last one."""
    pipelined_launch_seconds: Seconds = 0.0
    """Host time that a kernel's launch takes more in a pipeline, for each tensor-parallel rank."""
    step_seconds: Seconds = 4e-3
    """Host work between two steps: loss and norm read back, scheduler, data hand-over."""

    def of_axis(self, axis: str) -> float:
        """Return the pace of collectives inside a layer over the ranks of a mesh axis."""
        paces = {"tensor_parallel": self.tensor_parallel, "expert_parallel": self.expert_parallel}
        return paces.get(axis, 1.0)


AS_MEASURED: Final = ProgramPace()
