"""Links between ranks on one machine: the loopback, or network namespaces joined by veth pairs of a set rate.

Each rank has a namespace with one end of a veth pair; the other ends meet on a bridge in a namespace of its
own. Both ends are shaped by the kernel's token bucket filter: a rank sends and receives at the link's rate.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "closedloop"
"""Of the namespaces' names; the process that made them follows."""
HUB: Final = "hub"
BITS_PER_BYTE: Final = 8
BURST_SECONDS: Final = 5e-4
"""What may pass at once after a pause: a timer of the kernel must come round before it is used up."""
LEAST_BURST_BYTES: Final = 16_000
"""A few packets; the filter cuts larger ones."""
QUEUE_SECONDS: Final = 0.4
"""What waits for the link before packets are dropped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """What joins the ranks; no rate is the loopback of the machine, inside one node."""

    name: str
    bits_per_second: float | None = None

    @property
    def is_shaped(self) -> bool:
        """Whether the ranks sit in namespaces of their own, each a node."""
        return self.bits_per_second is not None


LOOPBACK: Final = Link(name="loopback")
TEN_GIGABIT: Final = Link(name="10 Gbit", bits_per_second=1e10)
GIGABIT: Final = Link(name="1 Gbit", bits_per_second=1e9)
HUNDRED_MEGABIT: Final = Link(name="100 Mbit", bits_per_second=1e8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """Ranks that can reach each other."""

    link: Link
    ranks: int

    @property
    def ranks_per_node(self) -> int:
        """How many ranks share a node: all of them, or one where each has a namespace."""
        return 1 if self.link.is_shaped else self.ranks

    def prefix(self, rank: int) -> list[str]:
        """Return what a command has to begin with to run where a rank is."""
        return ["ip", "netns", "exec", _namespace(str(rank))] if self.link.is_shaped else []

    def environment(self) -> dict[str, str]:
        """Return where the first rank is met, and over what."""
        if self.link.is_shaped:
            return {"MASTER_ADDR": _address(0), "GLOO_SOCKET_IFNAME": "eth0"}
        return {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}


@contextmanager
def joined(link: Link, *, ranks: int) -> Iterator[Network]:
    """Join some ranks by a link for a while; what was made for it is removed again, whatever happens.

    Raises CalledProcessError with what `ip` or `tc` said: shaped links need the rights of root.
    """
    remove_leftovers()
    try:
        if link.is_shaped:
            _make(link, ranks)
        yield Network(link=link, ranks=ranks)
    finally:
        for name in _own_namespaces():
            _remove(name)


def remove_leftovers() -> None:
    """Remove the namespaces of runs that were killed before they could."""
    for name in _namespaces():
        number = name.split("-")[1]
        if number.isdigit() and not os.path.exists(f"/proc/{number}"):  # noqa: PTH110 - the kernel's own
            _remove(name)


def _make(link: Link, ranks: int) -> None:
    hub = _namespace(HUB)
    _ip("netns", "add", hub)
    _inside(hub, "ip", "link", "add", "bridge", "type", "bridge")
    _inside(hub, "ip", "link", "set", "bridge", "up")
    for rank in range(ranks):
        own, port = _namespace(str(rank)), f"port{rank}"
        _ip("netns", "add", own)
        _inside(hub, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", own)
        _inside(hub, "ip", "link", "set", port, "master", "bridge", "up")
        _inside(own, "ip", "link", "set", "lo", "up")
        _inside(own, "ip", "address", "add", f"{_address(rank)}/24", "dev", "eth0")
        _inside(own, "ip", "link", "set", "eth0", "up")
        _shape(link, own, "eth0")
        _shape(link, hub, port)


def _shape(link: Link, namespace: str, device: str) -> None:
    rate = link.bits_per_second
    assert rate is not None
    burst = max(LEAST_BURST_BYTES, int(rate / BITS_PER_BYTE * BURST_SECONDS))
    queue = burst + int(rate / BITS_PER_BYTE * QUEUE_SECONDS)
    words = ["rate", f"{rate:.0f}bit", "burst", f"{burst}b", "limit", f"{queue}b"]
    _inside(namespace, "tc", "qdisc", "add", "dev", device, "root", "tbf", *words)


def _address(rank: int) -> str:
    return f"10.213.0.{rank + 1}"


def _namespace(part: str) -> str:
    return f"{PREFIX}-{os.getpid()}-{part}"


def _own_namespaces() -> list[str]:
    return [name for name in _namespaces() if name.split("-")[1] == str(os.getpid())]


def _namespaces() -> list[str]:
    try:
        listed = _ip("netns", "list").splitlines()
    except FileNotFoundError:
        return []
    return [line.split()[0] for line in listed if line.startswith(f"{PREFIX}-")]


def _remove(name: str) -> None:
    subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)  # noqa: S603, S607 - a name of ours


def _inside(namespace: str, *command: str) -> None:
    _ip("netns", "exec", namespace, *command)


def _ip(*words: str) -> str:
    ended = subprocess.run(["ip", *words], check=True, capture_output=True, text=True)  # noqa: S603, S607 - words of ours
    return ended.stdout
