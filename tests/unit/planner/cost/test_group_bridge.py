from hypothesis import given
from hypothesis import strategies as st

from planner.cluster import GroupLink
from planner.cost.group_bridge import GroupBridge
from planner.cost.tally import Cause

payloads = st.floats(1.0, 1e10)


def bridge(*, bandwidth: float = 25e9, latency: float = 1e-5) -> GroupBridge:
    link = GroupLink(groups=("a", "b"), bandwidth_bytes_per_second=bandwidth, latency_seconds=latency)
    return GroupBridge(link=link)


@given(payload=payloads)
def test_a_message_takes_at_least_its_bytes_at_the_rate_of_the_link(payload: float) -> None:
    assert bridge().send(payload).seconds > payload / 25e9 + 1e-5


@given(payload=payloads, factor=st.floats(1.0, 100.0))
def test_a_better_link_never_takes_longer(payload: float, factor: float) -> None:
    usual = bridge()
    for better in (bridge(bandwidth=25e9 * factor), bridge(latency=1e-5 / factor)):
        assert better.send(payload).seconds <= usual.send(payload).seconds
        assert better.all_reduce(payload).seconds <= usual.all_reduce(payload).seconds


@given(payload=payloads, groups=st.integers(2, 16))
def test_a_sum_over_more_groups_never_takes_less(payload: float, groups: int) -> None:
    seconds = [bridge().all_reduce(payload, groups=count).seconds for count in (groups, groups + 1)]
    assert seconds[0] <= seconds[1]


def test_nothing_takes_no_time_and_time_is_booked_under_its_cause() -> None:
    assert bridge().send(0.0).seconds == 0
    assert set(bridge().all_reduce(4.0, cause=Cause.OVERHEAD).causes) == {Cause.OVERHEAD}
