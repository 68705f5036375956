"""What it costs to keep states and activations on the host: copies over its link, updates on its cores.

Everything that a node's devices do with their host they do at once: each has its share of the links, of the
cores and of the memory's bandwidth. A copy runs beside compute, and what compute does not cover shows;
copies in both directions share a link (NVLink-C2C of a GB300 halves then, PCIe 4 of an A100 keeps 0.72).

Left out: the delayed update of ZeRO-Offload, which changes the algorithm, and what a copy takes from the
memory bandwidth of kernels beside it.
"""

from dataclasses import dataclass, replace
from typing import Final

from planner.cluster import Host, NodeGroup
from planner.cost.layout_costs import HostPart, PartCost, Run
from planner.cost.memory import GATHERED_LAYERS, StateBytes
from planner.cost.tally import NOTHING, Cause, Family, Tally, booked
from planner.framework import Framework, StateWidths
from planner.profile import Estimate, Provenance
from planner.strategy import HostShares, Sharding, ZeroStage
from planner.units import Bytes, BytesPerSecond, Seconds

UPDATE_SHARE: Final = 145 / 409.6
"""Part of a host's memory bandwidth that CPU-Adam reaches.

Its 30 bytes per parameter, of 13 billion of them, take 2.5 s more than on eight A100, whose host has two
sockets of 204.8 GB/s: 27 s instead of 24.5 s (hpcaitech/ColossalAI issue 4719).
"""
UPDATE_BYTES_PER_CORE: Final[BytesPerSecond] = 145e9 / 128
"""The same by cores, where a host's memory bandwidth is not known: two sockets of 64."""
MOST_BYTES_PER_CORE: Final[BytesPerSecond] = 28 * 5.369e8 / 1.81 / 2
"""What one core reaches at the most: 537 million parameters of 28 bytes in 1.81 s by two threads, copies
included (ISEEKYAN/Megatron-LM issue 188)."""
COPY_ERROR: Final = 0.15
UPDATE_ERROR: Final = 0.5
"""Relative errors: measured links agree within a tenth; updates of unlike hosts differ by half."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HostCosts:
    """Prices what devices of a node group keep on their hosts, as a framework does it."""

    host: Host
    devices_per_node: int
    framework: Framework
    widths: StateWidths

    @classmethod
    def of(cls, group: NodeGroup, framework: Framework, widths: StateWidths) -> "HostCosts | None":
        """Return the costs of a group's hosts; None where nothing is known of them."""
        if group.host is None:
            return None
        return cls(
            host=group.host, devices_per_node=group.devices_per_node, framework=framework, widths=widths
        )

    @property
    def copy_bytes_per_second(self) -> BytesPerSecond:
        """The rate of one device's copies while all others of its node copy too."""
        sharing = min(self.host.devices_per_link, self.devices_per_node)
        return self.host.link_bytes_per_second / sharing

    @property
    def update_bytes_per_second(self) -> BytesPerSecond:
        """The rate at which a host updates for one device, all others of its node at the same time."""
        bandwidth, cores = self.host.memory_bandwidth_bytes_per_second, self.host.cpu_cores
        if bandwidth is None:
            whole = cores * UPDATE_BYTES_PER_CORE
        else:
            whole = min(bandwidth * UPDATE_SHARE, cores * MOST_BYTES_PER_CORE)
        return whole / self.devices_per_node / self.framework.host_update_pace

    def copy_seconds(self, size: Bytes) -> Seconds:
        """Return how long so many bytes take between a device and its host."""
        return size / self.copy_bytes_per_second

    def on_host(
        self,
        part: PartCost,
        run: Run,
        held: HostPart,
        *,
        sharding: Sharding,
        shares: HostShares,
        activations: float,
    ) -> PartCost:
        """Return a part with shares of its states, and of what its layers keep, on the host.

        It is never quicker than the part without: a search rests its bounds on that. Copies run beside
        kernels and what shows of collectives alike, so a part that is quicker without stays so.
        """
        reloads = sharding.parameters == 1 or sharding.reshard_after_forward
        kept = activations * run.saved_bytes
        parameters = shares.parameters * held.parameter_bytes
        gradients = shares.gradients * held.gradient_bytes
        up = parameters if reloads and run.backward.seconds else 0.0
        return replace(
            part,
            forward=part.forward + self._shown(parameters + kept, behind=part.forward),
            backward=part.backward + self._shown(up + gradients + kept, behind=part.backward),
            optimizer=part.optimizer + self.update(held, part.optimizer, shares),
            saved_bytes=part.saved_bytes - kept,
            # What comes back is whole while its own backward pass runs, and the next layer's on its way.
            working_bytes=part.working_bytes + GATHERED_LAYERS * kept,
            states=StateBytes(
                parameters=part.states.parameters - parameters,
                gradients=part.states.gradients * (1 - shares.gradients),
                optimizer=part.states.optimizer * (1 - shares.optimizer),
            ),
            staged_bytes=self._staged(parameters, part, sharding=sharding, shares=shares),
            host_bytes=self.framework.footprint.host_factor
            * (
                parameters
                + shares.gradients * part.states.gradients
                + shares.optimizer * part.states.optimizer
                + self._gradients_to_update(held, shares)
            ),
            host_saved_bytes=kept,
        )

    def update(self, held: HostPart, on_device: Tally, shares: HostShares) -> Tally:
        """Return what the update on the host takes beyond that on the device, beside which it runs.

        Gradients that stayed on the device come down first, parameters that stay there go up after it.
        """
        if not shares.optimizer or not held.updated_parameters:
            return NOTHING
        updated = shares.optimizer * held.updated_parameters
        update = updated * held.update_bytes / self.update_bytes_per_second
        down = self.copy_seconds(max(shares.optimizer - shares.gradients, 0.0) * held.update_gradient_bytes)
        up = self.copy_seconds(max(shares.optimizer - shares.parameters, 0.0) * held.update_parameter_bytes)
        beside = self.framework.updates_host_beside_copies
        whole = max(update, down, up) if beside else update + down + up
        seconds = max(whole - on_device.seconds, 0.0)
        estimate = Estimate(seconds=seconds, provenance=Provenance.INTERPOLATED, relative_error=UPDATE_ERROR)
        return booked(estimate, cause=Cause.OFFLOAD, family=Family.HOST)

    def _shown(self, size: Bytes, *, behind: Tally) -> Tally:
        """Return what a copy adds to a pass that it runs beside."""
        return self._copy(max(self.copy_seconds(size) - behind.seconds, 0.0))

    def _copy(self, seconds: Seconds) -> Tally:
        estimate = Estimate(seconds=seconds, provenance=Provenance.INTERPOLATED, relative_error=COPY_ERROR)
        return booked(estimate, cause=Cause.OFFLOAD, family=Family.HOST)

    def _gradients_to_update(self, held: HostPart, shares: HostShares) -> Bytes:
        """Return the gradients that the host gets for its update, where they do not rest there anyhow."""
        return max(shares.optimizer - shares.gradients, 0.0) * held.update_gradient_bytes

    def _staged(self, parameters: Bytes, part: PartCost, *, sharding: Sharding, shares: HostShares) -> Bytes:
        """Return what is on its way: two layers' parameters, and their gradients where none are sharded."""
        staged = GATHERED_LAYERS * parameters
        if shares.gradients and sharding.zero_stage < ZeroStage.GRADIENTS:
            staged += GATHERED_LAYERS * self.widths.gradient * part.trained_parameters
        return staged
