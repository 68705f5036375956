"""What a proof promises: more is never worse, gaps and limits are kept, every choice is accounted for."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import pytest

from planner.cluster import Cluster
from planner.errors import InvalidRequest
from planner.job import Constraints, SolverLimits
from planner.plan import Certificate, Result, Status
from planner.planning import PlanRequest, best_plan, plan_training, searched_space
from planner.search.dimensions import dimensions
from planner.sensitivity import with_sensitivity
from tests.unit.planner.settings import request_of, setting
from tests.unit.planner.small_requests import small_request

SMALL = range(500, 520)
"""Other small requests than those of which every plan is tried."""
BEGINNINGS = (
    "searched",
    "not searched",
    "fixed by user",
    "fixed by framework",
    "fixed by the model",
    "forbidden",
    "not allowed by user",
)
"""How a certificate's words on a dimension begin."""
PLAN_WORDS = (
    "data_parallel",
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "sequence_parallel",
    "expert_parallel",
    "expert_tensor_parallel",
    "context_parallel_scheme",
    "all_to_all_degree",
    "rank_order",
    "micro_batch_size",
    "num_micro_batches",
    "schedule",
    "virtual_stages",
    "interleave_group_size",
    "zero_stage",
    "gather_dtype",
    "reduce_dtype",
    "reshard_after_forward",
    "recompute",
    "layers_per_stage",
    "offload",
)
"""What a plan decides, in the words of the flat form."""


def seconds(request: PlanRequest) -> float:
    """Return the step time of the best plan, proven; infinite where none fits or is legal."""
    found = best_plan(request)
    if found.certificate is None:
        assert found.status is Status.INFEASIBLE
        return inf
    assert found.certificate.proven_optimal
    return found.certificate.value


def proof(result: Result) -> Certificate:
    assert result.certificate is not None
    return result.certificate


@pytest.mark.parametrize("number", SMALL)
def test_more_memory_is_never_worse(number: int) -> None:
    request = small_request(number)
    limits = [replace(request.constraints, memory_fraction=share) for share in (0.025, 0.05, 0.94)]
    taken = [seconds(replace(request, constraints=limit)) for limit in limits]
    assert taken == sorted(taken, reverse=True)


@pytest.mark.parametrize("number", SMALL)
def test_more_bandwidth_is_never_worse(number: int) -> None:
    request = small_request(number)
    taken = [seconds(replace(request, cluster=faster(request.cluster, times=times))) for times in (1, 4)]
    assert taken == sorted(taken, reverse=True)


def faster(cluster: Cluster, *, times: float) -> Cluster:
    """Return a cluster whose links all carry so many times as much."""
    (group,) = cluster.node_groups
    levels = tuple(
        replace(level, bandwidth_bytes_per_second=times * level.bandwidth_bytes_per_second)
        for level in group.levels
    )
    return replace(cluster, node_groups=(replace(group, levels=levels),))


@pytest.mark.parametrize("number", SMALL[:12])
def test_more_devices_are_never_worse(number: int) -> None:
    request = small_request(number)
    free = replace(request, constraints=replace(request.constraints, fixed={}, bounds={}))
    taken = [seconds(replace(free, cluster=of_one_node(free.cluster, devices=n))) for n in (1, 2, 3, 4, 5)]
    assert taken == sorted(taken, reverse=True)


def of_one_node(cluster: Cluster, *, devices: int) -> Cluster:
    """Return so many devices of a cluster's kind on its innermost level."""
    (group,) = cluster.node_groups
    level = replace(group.levels[0], devices=devices)
    node = replace(group, num_nodes=1, devices_per_node=devices, levels=(level,))
    return replace(cluster, node_groups=(node,))


@pytest.mark.parametrize("gap", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("number", SMALL[:8])
def test_a_gap_that_is_good_enough_is_kept(number: int, gap: float) -> None:
    request = small_request(number)
    exact = seconds(request)
    found = best_plan(replace(request, solver=replace(request.solver, relative_gap=gap)))
    if found.certificate is None:
        assert exact == inf
        return
    assert found.certificate.lower_bound <= exact <= found.certificate.value <= exact * (1 + gap)
    assert found.certificate.relative_gap <= gap
    assert found.status is Status.OPTIMAL


@pytest.mark.parametrize("limit", [1e-9, 0.03, 0.1])
def test_a_search_that_is_cut_short_claims_no_more_than_it_knows(limit: float) -> None:
    request = usual()
    exact = proof(best_plan(request)).value
    found = best_plan(replace(request, solver=SolverLimits(time_limit_seconds=limit)))
    if found.certificate is None:
        assert found.status is Status.UNKNOWN
        return
    assert found.certificate.lower_bound <= exact <= found.certificate.value
    assert found.certificate.proven_optimal == (found.status is Status.OPTIMAL)
    assert not found.certificate.proven_optimal or found.certificate.value == exact


def usual(*, fixed: Mapping[str, object] | None = None, memory_fraction: float = 0.94) -> PlanRequest:
    judged = setting(
        model="llama-3-8b",
        cluster="a100-sxm-80gb",
        num_devices=4,
        num_layers=4,
        global_batch_size=32,
        sequence_length=1024,
    )
    return request_of(judged, constraints=Constraints(fixed=fixed or {}, memory_fraction=memory_fraction))


@pytest.mark.parametrize("number", SMALL[:12])
def test_every_choice_of_a_plan_is_accounted_for(number: int) -> None:
    words = dimensions(searched_space(replace(small_request(number), constraints=Constraints())))
    assert set(PLAN_WORDS) <= set(words)
    assert all(text.startswith(BEGINNINGS) for text in words.values()), words


@pytest.mark.parametrize(
    "fixed",
    [
        {"tensor_parallel": 2},
        {"pipeline_parallel": 2},
        {"micro_batch_size": 1},
        {"zero_stage": 1},
        {"virtual_stages": 1},
    ],
)
def test_what_the_user_fixes_is_said_to_be_and_never_helps(fixed: dict[str, object]) -> None:
    free, bound = best_plan(usual()), best_plan(usual(fixed=fixed))
    ((word, _),) = fixed.items()
    assert proof(free).dimensions[word].startswith("searched")
    assert proof(bound).dimensions[word] == "fixed by user"
    assert proof(bound).value >= proof(free).value


def test_what_is_not_searched_cannot_be_asked_for() -> None:
    words = proof(best_plan(usual())).dimensions
    closed = [word for word in PLAN_WORDS if words[word].startswith("not searched")]
    for word in closed:
        if word == "offload":
            continue
        with pytest.raises(InvalidRequest, match="not searched"):
            best_plan(usual(fixed={word: 1}))


@pytest.mark.parametrize("memory_fraction", [0.94, 0.12])
def test_every_sentence_cites_a_field_of_the_answer(memory_fraction: float) -> None:
    request = usual(fixed={"micro_batch_size": 1}, memory_fraction=memory_fraction)
    result = with_sensitivity(request, plan_training(request), explain=True, sensitivity=True)
    cited = [entry.pointer for entry in result.explanation]
    assert {"/certificate", "/prediction/breakdown_seconds", "/prediction/memory/0"} <= set(cited)
    assert any(pointer.startswith("/sensitivity/") for pointer in cited)
    for pointer in cited:
        assert pointed(result, pointer) is not None, pointer


def pointed(result: Result, pointer: str) -> object:
    """Return what a pointer into a result names; LookupError or AttributeError where nothing is there."""
    place: object = result
    for word in pointer.removeprefix("/").split("/"):
        place = place[int(word)] if isinstance(place, tuple) else getattr(place, word)
    return place
