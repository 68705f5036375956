"""The job and the software of a row: framework, precision, optimizer, attention, and their defaults."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.framework import Framework
from planner.job import AttentionKind, Job, Precision, Trainable, TrainableKind
from planner.optimizers import OPTIMIZERS, Optimizer
from planner.programs import traits_of
from planner.validation.rows import Reader, UnusableRow


@dataclass(frozen=True, kw_only=True, slots=True)
class Software:
    """Which framework a training program is priced as, and where its defaults differ from that one's.

    ``None`` means as the framework does. ``is_relative`` is set where it is another framework, the
    nearest that has traits here: its rows count as assumed.
    """

    framework: str
    program: str | None = None
    """Its name among the programs with traits of their own."""
    is_relative: bool = False
    zero_stage: int | None = None
    sequence_parallel: bool | None = None
    interleaves: bool = False
    """Whether its recipes interleave pipelines down to one layer a chunk."""
    precision: Precision = Precision.BF16

    @property
    def traits(self) -> Framework:
        """The traits of the framework."""
        return traits_of(self.framework, self.program)

    @property
    def default_zero_stage(self) -> int:
        """The ZeRO stage of more than one replica."""
        return self.traits.default_zero_stage if self.zero_stage is None else self.zero_stage

    @property
    def default_sequence_parallel(self) -> bool:
        """Whether tensor-parallel ranks split the sequence between their regions."""
        given = self.sequence_parallel
        return self.traits.default_sequence_parallel if given is None else given


SOFTWARE: Final[Mapping[str, Software]] = {
    # Recipes of NeMo and Bridge have the distributed optimizer, and sequence parallel beside tensor parallel.
    "megatron-bridge": Software(
        framework="megatron-bridge", zero_stage=1, sequence_parallel=True, interleaves=True
    ),
    "nemo": Software(
        framework="megatron-bridge", program="nemo", zero_stage=1, sequence_parallel=True, interleaves=True
    ),
    "primus": Software(framework="megatron-core", zero_stage=1),
    # In Megatron-LM itself --use-distributed-optimizer and --sequence-parallel are off.
    "megatron": Software(
        framework="megatron-core", program="megatron-lm", zero_stage=0, sequence_parallel=False
    ),
    "megatron-core": Software(framework="megatron-core", zero_stage=0, sequence_parallel=False),
    "megatron-deepspeed": Software(framework="megatron-deepspeed", precision=Precision.FP16),
    "megatron + deepspeed": Software(framework="megatron-deepspeed", precision=Precision.FP16),
    "deepspeed": Software(framework="deepspeed", precision=Precision.FP16),
    "nanotron": Software(framework="nanotron"),
    "llm-foundry": Software(framework="composer"),
    "composer": Software(framework="composer"),
    "torchtitan": Software(framework="torchtitan"),
    "maxtext": Software(framework="maxtext"),
    "pytorch": Software(framework="pytorch"),
    "fsdp": Software(framework="pytorch"),
    # Planners that generate their own programs over PyTorch.
    "alpa": Software(framework="any", is_relative=True),
    "galvatron": Software(framework="pytorch", is_relative=True),
    "nnscaler": Software(framework="any", is_relative=True),
}
"""Training programs by how their name begins, in small letters; the longest beginning wins.

The one place that says as which framework a program is priced.
"""
PROGRAM_HINTS: Final = (
    ("megatron-core", "framework", re.compile(r"\bte \d"), "megatron-lm-te"),
    # What a preset says goes before what its release does where it says nothing.
    ("megatron-bridge", "notes", re.compile(r"cuda_graph=full_iteration"), "megatron-bridge-graphs"),
    ("megatron-bridge", "framework", re.compile(r"megatron-bridge 25\."), "megatron-bridge-25"),
    ("megatron-bridge", "notes", re.compile(r"cuda_graph="), None),
    # Its presets for hybrids capture parts of layers in every release.
    ("megatron-bridge", "notes", re.compile(r"hybrid mamba"), None),
    ("megatron-bridge", "framework", re.compile(r" 26\.0[6-9]| 26\.1"), "megatron-bridge-graphs"),
    ("megatron-bridge", "framework", re.compile(r"nemo 2[34]\."), "nemo-24"),
    ("megatron-deepspeed", "framework", re.compile(r"\(sailor\)"), "sailor"),
    # The cluster that BigScience trained its models on.
    ("megatron-deepspeed", "inter_link", re.compile(r"jean zay"), "bigscience"),
)
"""Programs on a framework by what a column of their rows says."""
PRECISION_HINTS: Final = (
    # BigScience settled on BF16, in which its last sweeps ran and its model was trained.
    ("bigscience", "notes", re.compile(r"rebalancing layers|dated (02-28|03-)"), Precision.BF16),
)
"""Which of several precisions a program ran in, by what a column of its rows says."""
OTHER_SOFTWARE: Final = Software(framework="any", is_relative=True)

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
RECIPE_ADAPTERS: Final = Trainable(kind=TrainableKind.LORA, rank=16, targets=("linear_qkv",))
"""Adapters of the performance recipes of NeMo and Megatron Bridge, where a row says no more than LoRA."""
MIXED: Final = "amp_"
FLASHLESS_DEVICES: Final = ("V100", "P100", "P4", "T4", "RTX-2080")
"""Devices before Ampere, which the flash-attention kernels do not run on."""


def software_of(reader: Reader) -> Software:
    """Return what is known of a row's training program; an unknown one is priced without limits."""
    text = reader.row.text("framework").lower()
    known = [prefix for prefix in SOFTWARE if text.startswith(prefix)]
    software = SOFTWARE[max(known, key=len)] if known else OTHER_SOFTWARE
    for framework, column, pattern, program in PROGRAM_HINTS:
        if framework == software.framework and pattern.search(reader.row.text(column).lower()):
            return replace(software, program=program)
    return software


def job_of(reader: Reader, software: Software) -> Job:
    """Return the job of a row; UnusableRow where its batch is missing or its numbers have no name here."""
    if software.is_relative:
        reader.assumed.add("framework")
    precision = _precision(reader, software)
    return Job(
        global_batch_size=reader.required("gbs"),
        sequence_length=reader.required("seq_len"),
        precision=precision,
        optimizer=_optimizer(reader),
        framework=software.framework,
        framework_version=software.program,
        trainable=_trainable(reader),
        attention=_attention(reader, software.traits.default_attention(precision)),
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
    # Of several the program's own default, where it is among them.
    usual = _hinted_precision(reader, software) or software.precision
    chosen = usual if usual in choices else choices[-1]
    if chosen is None:
        raise UnusableRow(f"precision {text} is not known yet")
    return chosen if len(choices) == 1 else reader.default("precision", chosen)


def _hinted_precision(reader: Reader, software: Software) -> Precision | None:
    return next(
        (
            precision
            for program, column, pattern, precision in PRECISION_HINTS
            if program == software.program and pattern.search(reader.row.text(column).lower())
        ),
        None,
    )


def _optimizer(reader: Reader) -> Optimizer:
    words = reader.row.text("optimizer").lower().split()
    if not words:
        return reader.default("optimizer", OPTIMIZERS["adamw"])
    optimizer = OPTIMIZERS.get(words[0].strip("(),"))
    if optimizer is None:
        raise UnusableRow(f"optimizer {words[0]} is not priced yet")
    return optimizer


def _trainable(reader: Reader) -> Trainable:
    """Return what a row trains: adapters where its notes say so, as NeMo's recipes have them."""
    if not re.search(r"\bLoRA\b", reader.row.text("notes")):
        return Trainable()
    return reader.default("trainable", RECIPE_ADAPTERS)


def _attention(reader: Reader, usual: AttentionKind) -> AttentionKind:
    row = reader.row
    if row.text("device").startswith(FLASHLESS_DEVICES):
        usual = AttentionKind.UNFUSED
    is_flash = reader.flag("flash_attn", default=usual is AttentionKind.FLASH)
    return AttentionKind.FLASH if is_flash else AttentionKind.UNFUSED
