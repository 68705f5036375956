from dataclasses import replace

from planner.cluster import Cluster
from planner.machine_words import machine_words
from planner.planning import evaluate_plan
from planner.profile import Profile
from planner.strategy import ShortPlan
from tests.unit.planner.settings import request_of, setting

FACTS = {
    "sustained": {"ranks": [{"burst_flops_per_second": 1.2e14, "sustained_flops_per_second": 1e14}]},
    "overlaps": [
        {
            "collective_seconds_alone": 1.0,
            "kernels_seconds_alone": 1.0,
            "collective_seconds_together": 1.25,
            "kernels_seconds_together": 1.2,
        }
    ],
}


def cluster() -> Cluster:
    return setting().cluster


def test_an_answer_says_which_facts_of_a_machine_it_rests_on() -> None:
    request = request_of(setting(sequence_length=512, num_layers=2))
    device = cluster().node_groups[0].device.name
    own = Profile(name="own", device=device, facts=FACTS)
    plain = evaluate_plan(request, ShortPlan(data_parallel=8))
    told = evaluate_plan(replace(request, profiles=(*request.profiles, own)), ShortPlan(data_parallel=8))

    more = [one for one in told.explanation if one.pointer == "/profiles"]
    words = "communication beside work costs 25% of its time; under load products take 1.20 times as long"
    assert [one.text for one in more] == [f"As measured on {device}: {words}."]
    assert not [one for one in plain.explanation if one.pointer == "/profiles"]


def test_facts_of_other_devices_say_nothing() -> None:
    assert machine_words(cluster(), (Profile(name="own", device="other", facts=FACTS),)) == ()
