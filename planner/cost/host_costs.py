"""What a measured host adds to a cost model: between kernels, around sharded units, in passes and steps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.cluster import Device
from planner.cost.compute import KernelCosts
from planner.cost.host_times import PRODUCT_PHASES, PROGRAM_OF_ROWS, BothWays, HostTimes, ProgramRun
from planner.cost.layer import LayerClock
from planner.cost.ledger import TALLIES
from planner.cost.tally import NOTHING, Cause, Tally, constant
from planner.framework import Framework
from planner.job import Precision
from planner.profile import Estimate, Profile, Provenance
from planner.setting import Setting
from planner.units import Seconds
from planner.workload.layers import Cut
from planner.workload.operators import CollectivePass
from planner.workload.transformer import DecoderLayer

MEASURED_HOST_ERROR: Final = 0.3
"""Relative error of a measured host's time: blocks differ in what torch does around their kernels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitHost:
    """What the host takes beside the kernels of a part, per micro-batch and per step."""

    forward: Tally = NOTHING
    backward: Tally = NOTHING
    update: Tally = NOTHING

    def __add__(self, other: "UnitHost") -> "UnitHost":
        """Return both together."""
        return UnitHost(
            forward=self.forward + other.forward,
            backward=self.backward + other.backward,
            update=self.update + other.update,
        )


def measured_host(
    framework: Framework, device: Device, profiles: Sequence[Profile], *, kernels: KernelCosts
) -> HostTimes | None:
    """Return what a machine's profile says of its host beside kernels as they are priced.

    None where it says nothing, or of a framework whose program the profiler does not run.
    """
    run = ProgramRun.of(device, profiles)
    if run is None or framework.name != PROGRAM_OF_ROWS:
        return None
    at_once = replace(framework.pace, launch_seconds=0.0, serial_host_fraction=0.0)
    clock = LayerClock(
        kernels=kernels,
        collectives=_no_collective,
        ledger=TALLIES,
        framework=replace(framework, pace=at_once),
    )
    pace = _pace_since(run, device, profiles)
    times = HostTimes.of(run, device=device, kernels=_kernels_of(clock, run.block, run.cut).times(pace))
    if run.larger is None:
        return times
    return times.among_kernels(run, kernels=_kernels_of(clock, run.larger.block, run.larger.cut).times(pace))


def _pace_since(run: ProgramRun, device: Device, profiles: Sequence[Profile]) -> float:
    """Return what kernels took while the host was measured over what their rows say, measured at other times.

    A processor's clock, and its neighbours' use of caches, change by a tenth and more within minutes: as much
    as the host's own part of a block.
    """
    if run.product is None:
        return 1.0
    kernels = KernelCosts.opened(device, profiles, Precision.FP32)
    rows = sum(kernels.matrix_product(run.product, phase=phase).seconds for phase in PRODUCT_PHASES)
    return run.product_seconds() / rows


def _kernels_of(clock: LayerClock[Estimate, Tally], block: DecoderLayer, cut: Cut) -> BothWays:
    passes = clock.passes(block, cut)
    return BothWays(forward=passes.forward.seconds, backward=passes.backward.seconds)


def hosted(setting: Setting, host: HostTimes | None) -> Setting:
    """Return a setting whose framework takes as long for passes and steps as its host was measured to."""
    if host is None:
        return setting
    pace = replace(setting.framework.pace, pass_seconds=host.pass_seconds, step_seconds=host.step_seconds)
    return replace(setting, framework=replace(setting.framework, pace=pace))


def unit_host(host: HostTimes | None, *, is_layer: bool, is_sharded: bool) -> UnitHost:
    """Return what the host takes for the gathers and scatters of a part, and for its update.

    Both ends of the chain are one unit. A host that only launches kernels is ahead of them.
    """
    if host is None or not host.is_serial:
        return UnitHost()
    units = float(is_sharded) if is_layer else is_sharded / 2
    return UnitHost(
        forward=_amount(units * host.sharded.forward, Cause.OVERHEAD),
        backward=_amount(units * host.sharded.backward, Cause.OVERHEAD),
        update=_amount(host.layer_update_seconds if is_layer else 0.0, Cause.OPTIMIZER),
    )


def _amount(seconds: Seconds, cause: Cause) -> Tally:
    return constant(seconds, cause=cause, relative_error=MEASURED_HOST_ERROR) if seconds else NOTHING


def _no_collective(op: CollectivePass) -> Estimate:
    """Return the time of a collective of one rank."""
    del op
    return Estimate(seconds=0.0, provenance=Provenance.MEASURED, relative_error=0.0)
