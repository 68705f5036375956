import pytest

from planner.cluster import Level
from planner.validation.networks import network_level, node_gigabits
from planner.validation.rows import Reader
from tests.unit.planner.validation.published import row

USUAL = Level(name="infiniband-ndr", devices=16, bandwidth_bytes_per_second=50e9, latency_seconds=5e-6)


@pytest.mark.parametrize(
    ("text", "gigabits"),
    [
        ("ib-ndr400", 3200),
        ("ib-hdr200 x8 (selene)", 1600),
        ("ib-hdr200 x4", 800),
        ("1600 gbps/node roce", 1600),
        ("ib 800 gbps/node", 800),
        ("25 gbps (aws p3.16xlarge)", 25),
        ("omni-path 4x100gb/node (jean zay)", 400),
        ("omni-path (jean zay)", 400),
        ("efa (aws p5-class)", 3200),
        ("slingshot-11 (alps clariden)", 800),
        ("ethernet", None),
        ("", None),
    ],
)
def test_words_for_a_network_mean_a_rate_of_a_node(text: str, gigabits: float | None) -> None:
    assert node_gigabits(text, devices_per_node=8) == gigabits


def network(text: str) -> tuple[Level, set[str]]:
    reader = Reader(row=row(inter_link=text))
    return network_level(reader, USUAL, devices_per_node=8, num_devices=64), reader.assumed


def test_the_usual_network_under_its_name_is_the_usual_network() -> None:
    level, assumed = network("IB-NDR400")
    assert level.name == "infiniband-ndr"
    assert (level.devices, level.bandwidth_bytes_per_second) == (64, 50e9)
    assert not assumed


def test_devices_share_the_rate_of_their_node() -> None:
    level, assumed = network("800 Gbps/node")
    assert level.bandwidth_bytes_per_second == 12.5e9
    assert not assumed


def test_slower_ports_of_the_same_kind_keep_its_name_apart() -> None:
    level, _ = network("IB-HDR200 x8")
    assert (level.name, level.bandwidth_bytes_per_second) == ("infiniband-hdr", 25e9)


def test_a_network_over_libfabric_answers_later() -> None:
    assert network("EFA (AWS p5-class)")[0].latency_seconds > USUAL.latency_seconds


@pytest.mark.parametrize("text", ["", "pigeons"])
def test_an_unsaid_network_is_the_usual_one(text: str) -> None:
    level, assumed = network(text)
    assert level.bandwidth_bytes_per_second == USUAL.bandwidth_bytes_per_second
    assert assumed == {"inter_link"}
