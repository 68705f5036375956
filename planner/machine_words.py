"""What a profiled machine's own facts change in a prediction, in sentences."""

from collections.abc import Iterator

from planner.cluster import Cluster
from planner.cost.machine_facts import MachineFacts, Place
from planner.plan import Explanation
from planner.profile import Profile
from planner.units import format_seconds

PLACE_WORDS = {Place.INSIDE: "inside a node", Place.BETWEEN: "between nodes"}


def machine_words(cluster: Cluster, profiles: tuple[Profile, ...]) -> tuple[Explanation, ...]:
    """Return one sentence for each kind of device whose profiles tell how it works under load."""
    devices = {group.device.name: group.device for group in cluster.node_groups}
    found = ((name, MachineFacts.of(device, profiles)) for name, device in sorted(devices.items()))
    return tuple(
        Explanation(text=f"As measured on {name}: {'; '.join(_facts(facts))}.", pointer="/profiles")
        for name, facts in found
        if facts.measured
    )


def _facts(facts: MachineFacts) -> Iterator[str]:
    if "contention_fraction" in facts.measured:
        yield f"communication beside work costs {facts.contention_fraction:.0%} of its time"
    for place, factor in sorted(facts.crowding.items()):
        yield f"a collective {PLACE_WORDS[place]} takes {factor:.2f} times as long while other groups talk"
    if "load_slowdown" in facts.measured:
        yield f"under load products take {facts.load_slowdown:.2f} times as long"
    if "launch_seconds" in facts.measured:
        yield f"a launch takes {format_seconds(facts.launch_seconds)} or more"
