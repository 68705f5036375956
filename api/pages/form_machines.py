"""A node group of the caller's own by a few figures; what these leave out is as in the known systems."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from api.schemas.document import MAX_DEVICES
from planner.cluster_presets import cluster_preset_document, system_names

Link = dict[str, Any]
"""A level of links as a request has it."""
BANDWIDTH: Final = "bandwidth_bytes_per_second"
SHARING: Final = "devices_per_link"
NAME: Final = "mine"
"""What a node group is called that has no name in the form."""


@cache
def links_inside() -> tuple[str, ...]:
    """Return the names of the links inside the nodes of known systems, fastest first."""
    return _fastest_first(_links(inside=True))


@cache
def networks() -> tuple[str, ...]:
    """Return the names of the networks between the nodes of known systems, fastest first."""
    return _fastest_first(_links(inside=False))


def whole_group(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node group that figures describe, as a request has it; what they lack stays missing.

    ``figures`` has the keys of a node group, its levels by number: "0" inside a node, "1" between nodes.
    """
    nodes, per_node = (_count(figures.get(key)) for key in ("num_nodes", "devices_per_node"))
    levels = figures.get("levels", {})
    inside, network = levels.get("0", {}), levels.get("1", {})
    whole = [_level(inside, _links(inside=True), devices=per_node, per_node=per_node)]
    if nodes > 1:
        whole.append(_level(network, _links(inside=False), devices=nodes * per_node, per_node=per_node))
    rest = {key: value for key, value in figures.items() if key != "levels"}
    return {"name": NAME, **rest, "levels": whole}


def _level(said: Mapping[str, Any], known: Mapping[str, Link], *, devices: int, per_node: int) -> Link:
    """Return a level as it was said; what was left out is as the link usually is.

    Devices that share a port in nodes of eight have more of it each where a node has fewer.
    """
    usual = dict(known.get(str(said.get("name")), {}))
    sharing = usual.get(SHARING, 1)
    if sharing > per_node:
        usual[BANDWIDTH] *= sharing / per_node
        usual[SHARING] = per_node
    return {**usual, **said, "devices": devices}


def _count(value: object) -> int:
    """Return a whole number, 1 for what the service will refuse anyway."""
    return max(int(value), 1) if isinstance(value, int | float) and abs(value) <= MAX_DEVICES else 1


@cache
def _links(*, inside: bool) -> Mapping[str, Link]:
    """Return the links that join all devices of a node, or all nodes, as most of the known systems have them.

    Those are left out that need a shape, and those of the parts of a node that a port joins.
    """
    found: dict[str, Counter[tuple[tuple[str, Any], ...]]] = {}
    for system in system_names():
        document = cluster_preset_document(system)
        wanted = document["devices_per_node"] if inside else None
        for level in document["levels"]:
            is_shared = inside and SHARING in level
            if level["devices"] == wanted and not is_shared and "dimensions" not in level:
                facts = tuple((key, value) for key, value in level.items() if key not in {"name", "devices"})
                found.setdefault(level["name"], Counter())[facts] += 1
    return {name: dict(counted.most_common(1)[0][0]) for name, counted in found.items()}


def _fastest_first(links: Mapping[str, Link]) -> tuple[str, ...]:
    return tuple(sorted(links, key=lambda name: (-links[name][BANDWIDTH], name)))
