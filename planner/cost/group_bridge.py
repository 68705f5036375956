"""The link between two node groups, as messages and sums between ranks on either side meet it."""

from dataclasses import dataclass
from typing import Final

from planner.cluster import GroupLink, Level
from planner.cost.collective_model import LinkModel
from planner.cost.tally import Cause, Family, Tally, booked
from planner.profile import Estimate, Provenance
from planner.units import Bytes
from planner.workload.operators import Collective

BRIDGE_ERROR: Final = 0.15
"""Relative error of a link that is known by its figures alone, as of networks inside a group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupBridge:
    """What joins two node groups; each device has its own share of it, whoever else talks."""

    link: GroupLink

    def send(self, payload_bytes: Bytes, *, cause: Cause = Cause.PIPELINE) -> Tally:
        """Return one message from a device of one group to a device of the other."""
        return self._booked(Collective.SEND_RECEIVE, payload_bytes, ranks=2, cause=cause)

    def all_reduce(self, payload_bytes: Bytes, *, groups: int = 2, cause: Cause = Cause.PIPELINE) -> Tally:
        """Return a sum over one device of each of ``groups`` groups that are joined like these two."""
        return self._booked(Collective.ALL_REDUCE, payload_bytes, ranks=groups, cause=cause)

    def _booked(self, operation: Collective, payload_bytes: Bytes, *, ranks: int, cause: Cause) -> Tally:
        """Return a collective by the figures of the link: it is a network, one port for each device."""
        estimate = Estimate(
            seconds=self._model().seconds(operation, payload_bytes, ranks=ranks)
            if payload_bytes > 0
            else 0.0,
            provenance=Provenance.DATASHEET,
            relative_error=BRIDGE_ERROR,
        )
        return booked(estimate, cause=cause, family=Family.COLLECTIVE)

    def _model(self) -> LinkModel:
        level = Level(
            name="between groups",
            devices=2,
            bandwidth_bytes_per_second=self.link.bandwidth_bytes_per_second,
            latency_seconds=self.link.latency_seconds,
        )
        return LinkModel.of(level, is_network=True)
