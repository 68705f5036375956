"""The job and the software of a row: framework, precision, optimizer, attention, and their defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.frameworks import FRAMEWORKS
from planner.job import OPTIMIZERS, AttentionKind, Job, Optimizer, Precision
from planner.validation.rows import Reader, UnusableRow


@dataclass(frozen=True, kw_only=True, slots=True)
class Software:
    """How a training program is priced, and what it does where a row leaves it unsaid.

    ``frameworks`` names those of ours that stand for it, the best first; a row that has to take
    another one counts as assumed.
    """

    frameworks: tuple[str, ...]
    zero_stage: int = 0
    sequence_parallel: bool = False
    flash_attention: bool = True
    precision: Precision = Precision.BF16
    is_named: bool = True


SOFTWARE: Final[Mapping[str, Software]] = {
    # Its recipes switch on the distributed optimizer, and sequence parallel wherever tensor parallel is.
    "megatron-bridge": Software(
        frameworks=("megatron-bridge", "megatron-core"), zero_stage=1, sequence_parallel=True
    ),
    "nemo": Software(frameworks=("megatron-core",), zero_stage=1, sequence_parallel=True),
    "primus": Software(frameworks=("megatron-core",), zero_stage=1),
    # --use-distributed-optimizer, --sequence-parallel and ZeRO are all off by default.
    "megatron": Software(frameworks=("megatron-core",)),
    "megatron-deepspeed": Software(
        frameworks=("megatron-deepspeed", "megatron-core"), flash_attention=False, precision=Precision.FP16
    ),
    "megatron + deepspeed": Software(
        frameworks=("megatron-deepspeed", "megatron-core"), flash_attention=False, precision=Precision.FP16
    ),
    "deepspeed": Software(frameworks=("deepspeed", "megatron-core"), precision=Precision.FP16),
    # tp_mode is REDUCE_SCATTER: what Megatron calls sequence parallel.
    "nanotron": Software(frameworks=("nanotron", "megatron-core"), sequence_parallel=True),
    "llm-foundry": Software(frameworks=("composer", "pytorch"), zero_stage=3),
    "composer": Software(frameworks=("composer", "pytorch"), zero_stage=3),
    "torchtitan": Software(frameworks=("torchtitan", "pytorch"), zero_stage=3, sequence_parallel=True),
    "pytorch": Software(frameworks=("pytorch",), zero_stage=3),
    "fsdp": Software(frameworks=("pytorch",), zero_stage=3),
}
"""Training programs by how their name begins, in small letters; the longest beginning wins.

The one place that says which of our frameworks a program is priced as: one that has traits of its
own here is taken before the nearest relative.
"""
OTHER_SOFTWARE: Final = Software(frameworks=("any",), is_named=False)

PRECISIONS: Final[Mapping[str, Precision]] = {
    "fp32": Precision.FP32,
    "tf32": Precision.TF32,
    "fp16": Precision.FP16,
    "bf16": Precision.BF16,
    "fp8": Precision.FP8,
    "fp8-cs": Precision.FP8,
    "fp8-ds": Precision.FP8,
    "fp8-blockwise": Precision.FP8_BLOCK,
    "fp8-mx": Precision.MXFP8,
    "mxfp8": Precision.MXFP8,
    "nvfp4": Precision.NVFP4,
}
"""Spellings; -cs and -ds are Transformer Engine's current and delayed scaling."""
MIXED: Final = "amp_"
FLASHLESS_DEVICES: Final = ("V100", "P100", "P4", "T4", "RTX-2080")
"""Devices before Ampere, which the flash-attention kernels do not run on."""


def software_of(reader: Reader) -> Software:
    """Return what is known of a row's training program; an unknown one is priced without limits."""
    text = reader.row.text("framework").lower()
    known = [prefix for prefix in SOFTWARE if text.startswith(prefix)]
    return SOFTWARE[max(known, key=len)] if known else OTHER_SOFTWARE


def framework_of(reader: Reader, software: Software) -> str:
    """Return the first of the software's names that has traits here."""
    name = next(name for name in software.frameworks if name in FRAMEWORKS)
    is_relative = name != software.frameworks[0] or not software.is_named
    return reader.default("framework", name) if is_relative else name


def job_of(reader: Reader, software: Software) -> Job:
    """Return the job of a row; UnusableRow where its batch is missing or its numbers have no name here."""
    return Job(
        global_batch_size=reader.required("gbs"),
        sequence_length=reader.required("seq_len"),
        precision=_precision(reader, software),
        optimizer=_optimizer(reader),
        framework=framework_of(reader, software),
        attention=_attention(reader, software),
    )


def precision_label(text: str) -> str:
    """Return our name of a precision as a row spells it; its own spelling where it has none here."""
    spelled = text.lower().removeprefix(MIXED).split("|")[-1].strip()
    known = PRECISIONS.get(spelled)
    return known.value if known else spelled


def _precision(reader: Reader, software: Software) -> Precision:
    text = reader.row.text("precision").lower().removeprefix(MIXED)
    if not text:
        return reader.default("precision", software.precision)
    choices = [PRECISIONS.get(part.strip()) for part in text.split("|")]
    chosen = choices[-1]
    if chosen is None:
        raise UnusableRow(f"precision {text} is not known yet")
    return chosen if len(choices) == 1 else reader.default("precision", chosen)


def _optimizer(reader: Reader) -> Optimizer:
    words = reader.row.text("optimizer").lower().split()
    if not words:
        return reader.default("optimizer", OPTIMIZERS["adamw"])
    optimizer = OPTIMIZERS.get(words[0].strip("(),"))
    if optimizer is None:
        raise UnusableRow(f"optimizer {words[0]} is not priced yet")
    return optimizer


def _attention(reader: Reader, software: Software) -> AttentionKind:
    runs_flash = not reader.row.text("device").startswith(FLASHLESS_DEVICES)
    is_flash = reader.flag("flash_attn", default=software.flash_attention and runs_flash)
    return AttentionKind.FLASH if is_flash else AttentionKind.UNFUSED
