"""A job on the wire as the planner's."""

import pytest
from pydantic import ValidationError

from api.schemas.job import JobDocument, TrainableDocument
from planner.errors import InvalidRequest
from planner.job import AttentionKind, BaseFormat, Loss, Precision, Trainable, TrainableKind
from planner.workload.presets import preset_workload

GPT2 = preset_workload("gpt-2-124m")


def test_what_is_left_out_has_its_default() -> None:
    job = JobDocument(global_batch_size=8, sequence_length=128).to_job(GPT2)
    assert job.precision is Precision.BF16
    assert job.optimizer.name == "adamw"
    assert job.framework == "megatron-core"
    assert job.attention is AttentionKind.FLASH
    assert job.gradient_dtype is None
    assert not job.compiled


def test_what_is_said_arrives() -> None:
    document = JobDocument.model_validate(
        {
            "global_batch_size": 8,
            "sequence_length": 128,
            "precision": "fp16",
            "optimizer": "sgd",
            "framework": "pytorch",
            "framework_version": "2.13",
            "gradient_dtype": "fp32",
            "attention": "unfused",
            "compile": True,
        }
    )
    job = document.to_job(GPT2)
    assert (job.precision, job.optimizer.name, job.framework) == (Precision.FP16, "sgd", "pytorch")
    assert (job.framework_version, job.gradient_dtype) == ("2.13", Precision.FP32)
    assert job.attention is AttentionKind.UNFUSED
    assert job.compiled


def test_a_model_with_a_sequence_needs_its_length() -> None:
    with pytest.raises(InvalidRequest) as caught:
        JobDocument(global_batch_size=8).to_job(GPT2)
    assert caught.value.pointer == "/job/sequence_length"
    assert caught.value.nearest_legal == (1024,)


@pytest.mark.parametrize(
    ("said", "known"), [("adamw_bnb_8bit", "adamw_8bit"), ("adamw_torch", "adamw"), ("muon", "muon")]
)
def test_optimizers_go_by_the_names_that_people_use(said: str, known: str) -> None:
    document = JobDocument.model_validate({"global_batch_size": 8, "optimizer": said})
    assert document.optimizer == known


def test_an_unknown_optimizer_is_told_its_nearest() -> None:
    with pytest.raises(ValidationError) as caught:
        JobDocument.model_validate({"global_batch_size": 8, "optimizer": "adafacto"})
    (error,) = caught.value.errors()
    assert error["ctx"]["nearest_legal"][0] == "adafactor"


def test_adapters_arrive_with_a_rank_where_none_is_said() -> None:
    document = JobDocument.model_validate(
        {
            "global_batch_size": 8,
            "sequence_length": 128,
            "trainable": {"kind": "lora", "targets": ["c_attn"], "base_dtype": "nf4"},
            "loss": "dpo",
        }
    )
    job = document.to_job(GPT2)
    assert job.trainable == Trainable(
        kind=TrainableKind.LORA, rank=16, targets=("c_attn",), base_format=BaseFormat.NF4
    )
    assert job.loss is Loss.DPO


@pytest.mark.parametrize(("field", "value"), [("rank", 8), ("targets", ["q_proj"]), ("base_dtype", "nf4")])
def test_full_training_has_no_adapters(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match="lora"):
        TrainableDocument.model_validate({field: value})


@pytest.mark.parametrize(
    ("document", "nearest"),
    [({"kind": "lorra"}, "lora"), ({"kind": "lora", "base_dtype": "nf"}, "nf4")],
)
def test_unknown_words_are_told_the_nearest(document: dict[str, object], nearest: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainableDocument.model_validate(document)
    assert caught.value.errors()[0]["ctx"]["nearest_legal"][0] == nearest
