"""A job on the wire as the planner's."""

import pytest

from api.schemas.job import JobDocument
from planner.errors import InvalidRequest
from planner.job import AttentionKind, Precision
from planner.workload.presets import preset_workload

GPT2 = preset_workload("gpt-2-124m")


def test_what_is_left_out_has_its_default() -> None:
    job = JobDocument(global_batch_size=8, sequence_length=128).to_job(GPT2)
    assert job.precision is Precision.BF16
    assert job.optimizer.name == "adamw"
    assert job.framework == "megatron-core"
    assert job.attention is AttentionKind.FLASH
    assert job.gradient_dtype is None


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
        }
    )
    job = document.to_job(GPT2)
    assert (job.precision, job.optimizer.name, job.framework) == (Precision.FP16, "sgd", "pytorch")
    assert (job.framework_version, job.gradient_dtype) == ("2.13", Precision.FP32)
    assert job.attention is AttentionKind.UNFUSED


def test_a_model_with_a_sequence_needs_its_length() -> None:
    with pytest.raises(InvalidRequest) as caught:
        JobDocument(global_batch_size=8).to_job(GPT2)
    assert caught.value.pointer == "/job/sequence_length"
    assert caught.value.nearest_legal == (1024,)
