"""What a profiled machine's own facts change in a prediction, in sentences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from planner.cluster import Cluster, Device
from planner.cost.corrections import FACT, Corrections, Kind
from planner.cost.machine_facts import MachineFacts, Place
from planner.plan import Explanation
from planner.profile import Profile
from planner.units import format_seconds

KIND_WORDS: Final[Mapping[Kind, str]] = {
    Kind.MATRIX_PRODUCT: "matrix products",
    Kind.ATTENTION: "attention",
    Kind.MEMORY_PASS: "passes over memory",
    Kind.OPTIMIZER: "the optimizer",
    Kind.COLLECTIVE_INSIDE: "collectives inside a node",
    Kind.COLLECTIVE_BETWEEN: "collectives between nodes",
    Kind.HOST: "the host",
}
PLACE_WORDS: Final = {Place.INSIDE: "inside a node", Place.BETWEEN: "between nodes"}


def machine_words(cluster: Cluster, profiles: tuple[Profile, ...]) -> tuple[Explanation, ...]:
    """Return one sentence for each kind of device whose profiles tell how it works under load."""
    return tuple(
        Explanation(text=text, pointer="/profiles")
        for device in _devices(cluster)
        for text in (
            *_told(f"As measured on {device.name}", _facts(MachineFacts.of(device, profiles))),
            *_corrected(device, profiles),
        )
    )


def calibration_warnings(cluster: Cluster, profiles: tuple[Profile, ...]) -> tuple[str, ...]:
    """Return a warning for each calibration of other measurements than those that are corrected."""
    return tuple(
        f"the calibration {name} rests on other measurements of {device.name} than those used here: "
        "run `meshplan profiles calibrate` again"
        for device in _devices(cluster)
        if (name := Corrections.of(device, profiles).name)
        and not _is_of_these(name, [profile for profile in profiles if profile.device == device.name])
    )


def _is_of_these(name: str, own: Sequence[Profile]) -> bool:
    (calibration,) = (profile for profile in own if profile.name == name)
    rests_on = {row["digest"] for row in calibration.facts[FACT].get("profiles", ())}
    return rests_on == {profile.digest for profile in own if FACT not in profile.facts}


def _devices(cluster: Cluster) -> Sequence[Device]:
    devices = {group.device.name: group.device for group in cluster.node_groups}
    return [devices[name] for name in sorted(devices)]


def _told(what: str, facts: Iterable[str]) -> Iterator[str]:
    text = "; ".join(facts)
    if text:
        yield f"{what}: {text}."


def _corrected(device: Device, profiles: tuple[Profile, ...]) -> Iterator[str]:
    corrections = Corrections.of(device, profiles)
    factors = (
        f"{KIND_WORDS[kind]} {one.factor:.2f} ± {one.factor * one.relative_error:.2f}"
        for kind, one in corrections.by_kind.items()
        if one.informed
    )
    what = f"Steps that ran on {device.name} take over predicted times ({corrections.name})"
    yield from _told(what, factors)


def _facts(facts: MachineFacts) -> Iterator[str]:
    if "contention_fraction" in facts.measured:
        yield f"communication beside work costs {facts.contention_fraction:.0%} of its time"
    for place, factor in sorted(facts.crowding.items()):
        yield f"a collective {PLACE_WORDS[place]} takes {factor:.2f} times as long while other groups talk"
    if "load_slowdown" in facts.measured:
        yield f"under load products take {facts.load_slowdown:.2f} times as long"
    if "launch_seconds" in facts.measured:
        yield f"a launch takes {format_seconds(facts.launch_seconds)} or more"
