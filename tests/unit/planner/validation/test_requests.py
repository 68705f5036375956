from collections.abc import Mapping

import pytest

from planner.framework import FULL_RECOMPUTE, NO_RECOMPUTE, SELECTIVE_RECOMPUTE
from planner.strategy import Recompute, Schedule, ScheduleName
from planner.validation.evaluation import Evaluator
from planner.validation.requests import question_of
from planner.validation.rows import UnusableRow
from tests.unit.planner.validation.published import row


def test_a_row_that_says_everything_assumes_nothing() -> None:
    question = question_of(row())
    plan = question.plan
    assert not question.assumed
    assert (plan.tensor_parallel, plan.data_parallel, plan.micro_batch_size) == (2, 4, 2)
    assert (plan.zero_stage, plan.sequence_parallel, plan.layers_per_stage) == (1, True, None)


def test_defaults_are_those_of_the_program_and_counted() -> None:
    unsaid = dict.fromkeys(("zero_stage", "dist_opt", "seq_parallel", "recompute", "vpp", "cp"), "")
    question = question_of(row(**unsaid, framework="nanotron", pp="2", dp="2"))
    assert question.plan.zero_stage == 0
    assert question.plan.sequence_parallel
    assert question.plan.recompute == NO_RECOMPUTE
    assert question.assumed == {"zero_stage", "seq_parallel", "recompute", "vpp", "cp"}


@pytest.mark.parametrize(
    ("cells", "stage"),
    [
        ({"zero_stage": "", "dist_opt": "True"}, 1),
        ({"zero_stage": "", "dist_opt": "False"}, 0),
        ({"zero_stage": "3"}, 3),
        ({"zero_stage": "1", "gpus": "2", "dp": "1"}, 0),
    ],
)
def test_sharding_is_the_distributed_optimizer_or_a_zero_stage(cells: dict[str, str], stage: int) -> None:
    question = question_of(row(**cells))
    assert question.plan.zero_stage == stage
    assert not question.assumed


def test_a_zero_stage_that_does_not_exist_is_no_fact() -> None:
    with pytest.raises(UnusableRow, match="zero_stage is none of 0 to 3"):
        question_of(row(zero_stage="4"))


def test_degrees_of_none_are_one() -> None:
    plan = question_of(row(cp="0", ep="0", vpp="0", pp="2", dp="2")).plan
    assert (plan.context_parallel, plan.expert_parallel, plan.virtual_stages) == (1, 1, 1)


@pytest.mark.parametrize(
    ("text", "recompute"),
    [
        ("none", NO_RECOMPUTE),
        ("full", FULL_RECOMPUTE),
        ("full (per decoder layer)", FULL_RECOMPUTE),
        ("selective", SELECTIVE_RECOMPUTE),
        ("selective (core attention)", SELECTIVE_RECOMPUTE),
    ],
)
def test_recomputation_is_read_from_its_words(text: str, recompute: Recompute) -> None:
    assert question_of(row(recompute=text)).plan.recompute == recompute


@pytest.mark.parametrize(
    ("cells", "chunks"),
    [
        ({"framework": "Megatron-LM"}, 1),
        ({"framework": "NeMo 25.04"}, 11),
        ({"framework": "NeMo 25.04", "layers": "23"}, 1),
        ({"framework": "NeMo 25.04", "gbs": "12"}, 1),
    ],
)
def test_unsaid_interleaving_is_as_fine_as_a_recipe_makes_it(cells: dict[str, str], chunks: int) -> None:
    question = question_of(row(vpp="", pp="2", dp="2", **cells))
    assert question.plan.virtual_stages == chunks
    assert "vpp" in question.assumed


def test_a_pipeline_of_one_stage_has_nothing_to_interleave() -> None:
    question = question_of(row(vpp="", framework="NeMo 25.04"))
    assert question.plan.virtual_stages == 1
    assert "vpp" not in question.assumed


def test_unsaid_data_parallel_is_what_the_devices_leave() -> None:
    question = question_of(row(dp=""))
    assert question.plan.data_parallel == 4
    assert not question.assumed


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "split"),
    [
        ("22", "2", "1", None),
        ("22", "4", "1", (5, 6, 6, 5)),
        ("22", "4", "3", (1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1)),
        ("23", "4", "1", (6, 6, 6, 5)),
    ],
)
def test_layers_that_do_not_come_out_leave_room_for_the_ends(
    layers: str, pp: str, vpp: str, split: tuple[int, ...] | None
) -> None:
    question = question_of(row(layers=layers, pp=pp, vpp=vpp, tp="1", dp=""))
    assert question.plan.layers_per_stage == split
    assert ("layers_per_stage" in question.assumed) == (split is not None)


def test_a_framework_that_spreads_layers_itself_is_left_to() -> None:
    question = question_of(row(layers="23", pp="4", tp="1", dp="", framework="nanotron"))
    assert question.plan.layers_per_stage is None


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"tp": ""}, "no tp"),
        ({"pp": ""}, "no pp"),
        ({"mbs": ""}, "no mbs"),
        ({"dp": "2"}, "gpus is not tp x pp x cp x dp"),
        ({"recompute": "selective: dance"}, "recomputation selective: dance is not priced yet"),
        ({"recompute": "full, 5 layers"}, "recomputation full, 5 layers is not priced yet"),
        ({"offload": "attic"}, "offload attic is not known"),
        ({"notes": "schedule=dance; made up", "pp": "2", "dp": ""}, "schedule dance is not known"),
        ({"notes": "schedule=zbv; made up", "pp": "2", "seq_len": ""}, "no seq_len"),
    ],
)
def test_a_plan_that_cannot_be_priced_is_refused(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(UnusableRow, match=reason):
        question_of(row(**cells))


@pytest.mark.parametrize(
    ("word", "vpp", "name"),
    [
        ("zbv", "2", ScheduleName.ZB_V),
        ("zb-h1", "1", ScheduleName.ZB_H1),
        ("dualpipev", "2", ScheduleName.DUALPIPE_V),
        ("gpipe", "1", ScheduleName.GPIPE),
    ],
)
def test_a_schedule_that_the_notes_name_is_predicted(word: str, vpp: str, name: ScheduleName) -> None:
    notes = f"schedule={word}; made up"
    question = question_of(row(pp="2", dp="2", vpp=vpp, notes=notes, framework="Primus (Megatron)"))
    assert question.plan.schedule == Schedule(name=name, virtual_stages=int(vpp))
    usual = question_of(row(pp="2", dp="2", framework="Primus (Megatron)"))
    evaluator = Evaluator()
    found, plain = (evaluator.prediction(asked) for asked in (question, usual))
    assert found != plain


def test_modules_to_recompute_are_read_by_megatrons_words() -> None:
    plan = question_of(row(recompute="selective: layernorm+moe_act")).plan
    assert plan.recompute is not None
    assert plan.recompute.modules == ("norm", "moe_activation")


def test_experts_are_spread_as_the_row_says() -> None:
    assert question_of(row(ep="4")).plan.expert_parallel == 4


def test_notes_say_how_many_ranks_share_an_expert() -> None:
    assert question_of(row(notes="published aggregate; ETP=4")).plan.extra == {"expert_tensor_parallel": 4}
    assert question_of(row()).plan.extra == {}


@pytest.mark.parametrize(
    ("said", "on_host"),
    [
        ("none", {}),
        ("full", {"optimizer": 1.0, "parameters": 1.0}),
        ("optimizer+activations", {"optimizer": 1.0, "activations": 1.0}),
    ],
)
def test_a_row_keeps_on_the_host_what_it_says(said: str, on_host: Mapping[str, float]) -> None:
    question = question_of(row(framework="DeepSpeed", tp="1", dp="8", mbs="1", seq_parallel="", offload=said))
    assert question.plan.offload == on_host
