"""What a certificate says of each dimension follows from the framework, the model and the caller."""

import pytest

from planner.job import Constraints
from planner.search.dimensions import dimensions
from planner.search.space import search_space
from planner.strategy import Schedule, ScheduleName
from tests.unit.planner.settings import setting


def words(framework: str, *, num_devices: int = 8, **fixed: object) -> dict[str, str]:
    judged = setting(framework=framework, num_devices=num_devices)
    return dimensions(search_space(judged, Constraints(fixed=fixed)))


@pytest.mark.parametrize(
    ("framework", "scheme", "degree"),
    [
        ("megatron-core", "searched", "searched"),
        ("pytorch", "searched", "fixed by framework"),
        ("torchtitan", "fixed by framework", "fixed by framework"),
        ("deepspeed", "fixed by framework", "fixed by framework"),
    ],
)
def test_schemes_are_searched_where_the_framework_has_several(
    framework: str, scheme: str, degree: str
) -> None:
    said = words(framework)
    assert (said["context_parallel_scheme"], said["all_to_all_degree"]) == (scheme, degree)


def test_a_fixed_scheme_is_the_callers() -> None:
    assert words("any", context_parallel_scheme="ring")["context_parallel_scheme"] == "fixed by user"


def test_many_devices_are_left_idle_as_they_divide_alone() -> None:
    assert words("any")["num_devices"] == "searched: all 8, and fewer where those may be faster"
    assert "that divides them" in words("any", num_devices=1024)["num_devices"]


def test_gathered_parameters_stay_where_a_zero_stage_means_that() -> None:
    assert words("pytorch")["reshard_after_forward"].startswith("searched, by zero_stage")
    assert words("megatron-core")["reshard_after_forward"] == "fixed by framework"
    assert words("deepspeed")["reshard_after_forward"] == "searched"
    assert words("deepspeed", reshard_after_forward=False)["reshard_after_forward"] == "fixed by user"


@pytest.mark.parametrize(
    ("framework", "words_of_order"),
    [
        ("megatron-core", "searched: data parallel inside or outside the pipeline"),
        ("any", "searched: data parallel inside or outside the pipeline"),
        ("torchtitan", "fixed by framework"),
    ],
)
def test_orders_of_ranks_are_searched_where_the_framework_has_several(
    framework: str, words_of_order: str
) -> None:
    assert words(framework)["rank_order"].startswith(words_of_order)


def test_experts_are_numbered_as_all_else_is() -> None:
    assert words("megatron-core")["expert_rank_order"].startswith("fixed by framework")
    assert words("any")["expert_rank_order"].startswith("not searched")


def test_a_fixed_order_is_the_callers() -> None:
    order = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel")
    assert words("megatron-core", rank_order=order)["rank_order"] == "fixed by user"


def test_nodes_that_share_a_host_keep_the_usual_order() -> None:
    assert words("any", offload={"optimizer": 1.0})["rank_order"].startswith("not searched")


@pytest.mark.parametrize(
    ("framework", "words_of_groups"),
    [
        ("megatron-core", "searched: as many nearest replicas"),
        ("torchtitan", "searched: as many nearest replicas"),
        ("any", "searched: as many nearest replicas"),
        ("nanotron", "fixed by framework"),
    ],
)
def test_groups_that_share_states_are_searched_where_the_framework_has_several(
    framework: str, words_of_groups: str
) -> None:
    assert words(framework)["shard_group"].startswith(words_of_groups)


def test_nodes_that_share_a_host_keep_the_largest_groups() -> None:
    assert words("any", offload={"optimizer": 1.0})["shard_group"].startswith("not searched: all replicas")


def test_a_fixed_schedule_says_how_many_micro_batches_a_chunk_runs_at_a_time() -> None:
    schedule = Schedule(name=ScheduleName.INTERLEAVED, virtual_stages=2, interleave_group_size=8)
    assert words("any", schedule=schedule)["interleave_group_size"] == "fixed by user"
    assert words("any")["interleave_group_size"].startswith("not searched: the fewest")


@pytest.mark.parametrize(
    ("framework", "said"),
    [
        ("megatron-core", "none and full, and every set of modules without the fused attention core"),
        ("torchtitan", "none and full"),
        ("pytorch", "searched by layer: none and full, and the attention core, where that is not fused"),
    ],
)
def test_recomputation_says_what_was_tried_and_for_which_part_of_a_job(framework: str, said: str) -> None:
    assert words(framework)["recompute"].endswith(said)
