import pytest

from planner.frameworks import FRAMEWORKS
from planner.job import AttentionKind, Precision
from planner.validation.rows import Reader, UnusableRow
from planner.validation.software import SOFTWARE, job_of, precision_label, software_of
from tests.unit.planner.validation.published import row


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("Megatron-LM 23e00ed0 + TE 2.11", "megatron-core"),
        ("Megatron-Core r0.8.0", "megatron-core"),
        ("Megatron", "megatron-core"),
        ("NeMo (DGX Cloud recipe v25.04.02)", "megatron-bridge"),
        ("Megatron-Bridge 26.04 NeMo Container", "megatron-bridge"),
        ("Megatron-DeepSpeed", "megatron-deepspeed"),
        ("nanotron", "nanotron"),
        ("llm-foundry/Composer FSDP", "composer"),
        ("torchtitan", "torchtitan"),
    ],
)
def test_programs_are_priced_as_a_framework(text: str, framework: str) -> None:
    software = software_of(Reader(row=row(framework=text)))
    assert software.framework == framework
    assert not software.is_relative


def test_every_program_is_priced_as_a_framework_that_exists() -> None:
    assert {software.framework for software in SOFTWARE.values()} <= set(FRAMEWORKS)


def test_an_unknown_program_has_no_limits_and_counts_as_assumed() -> None:
    reader = Reader(row=row(framework="in-house"))
    assert job_of(reader, software_of(reader)).framework == "any"
    assert reader.assumed == {"framework"}


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("bf16", Precision.BF16),
        ("BF16", Precision.BF16),
        ("amp_bf16", Precision.BF16),
        ("FP8-CS", Precision.FP8),
        ("FP8-MX", Precision.MXFP8),
        ("NVFP4", Precision.NVFP4),
    ],
)
def test_precisions_are_known_in_every_spelling(text: str, precision: Precision) -> None:
    reader = Reader(row=row(precision=text))
    assert job_of(reader, software_of(reader)).precision is precision
    assert precision_label(text) == precision
    assert not reader.assumed


@pytest.mark.parametrize("text", ["", "fp16|bf16"])
def test_an_open_precision_counts_as_assumed(text: str) -> None:
    reader = Reader(row=row(precision=text))
    assert job_of(reader, software_of(reader)).precision is Precision.BF16
    assert reader.assumed == {"precision"}


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"precision": "posit16"}, "precision posit16 is not known yet"),
        ({"optimizer": "shampoo"}, "optimizer shampoo is not priced yet"),
        ({"gbs": ""}, "no gbs"),
    ],
)
def test_a_job_that_cannot_be_priced_is_refused(cells: dict[str, str], reason: str) -> None:
    reader = Reader(row=row(**cells))
    with pytest.raises(UnusableRow, match=reason):
        job_of(reader, software_of(reader))


@pytest.mark.parametrize(
    ("cells", "kind", "assumed"),
    [
        ({"flash_attn": "False"}, AttentionKind.UNFUSED, set()),
        ({"flash_attn": ""}, AttentionKind.FLASH, {"flash_attn"}),
        ({"flash_attn": "", "precision": "fp16"}, AttentionKind.UNFUSED, {"flash_attn"}),
        (
            {"flash_attn": "", "framework": "nanotron", "device": "V100"},
            AttentionKind.UNFUSED,
            {"flash_attn"},
        ),
    ],
)
def test_attention_runs_as_the_row_or_its_framework_says(
    cells: dict[str, str], kind: AttentionKind, assumed: set[str]
) -> None:
    reader = Reader(row=row(**cells))
    assert job_of(reader, software_of(reader)).attention is kind
    assert reader.assumed == assumed


def test_an_optimizer_is_known_by_its_first_word() -> None:
    reader = Reader(row=row(optimizer="adam (apex fused)"))
    assert job_of(reader, software_of(reader)).optimizer.name == "adam"


@pytest.mark.parametrize(
    ("cells", "program"),
    [
        ({"framework": "Megatron-LM"}, "megatron-lm"),
        ({"framework": "Megatron-LM 23e00ed0 + TE 2.11"}, "megatron-lm-te"),
        ({"framework": "Megatron-DeepSpeed"}, None),
        ({"framework": "Megatron-DeepSpeed (Sailor)"}, "sailor"),
        (
            {"framework": "Megatron-DeepSpeed", "inter_link": "Omni-Path 4x100Gb/node (Jean Zay)"},
            "bigscience",
        ),
    ],
)
def test_a_fork_is_known_by_what_the_row_says(cells: dict[str, str], program: str | None) -> None:
    assert software_of(Reader(row=row(**cells))).program == program


@pytest.mark.parametrize(
    ("notes", "has_adapters"), [("LoRA packed SQuAD", True), ("Pre-Training Performance", False), ("", False)]
)
def test_a_row_trains_adapters_where_its_notes_say_so(notes: str, has_adapters: bool) -> None:  # noqa: FBT001
    reader = Reader(row=row(notes=notes))
    assert job_of(reader, software_of(reader)).trainable.has_adapters is has_adapters
    assert ("trainable" in reader.assumed) is has_adapters


@pytest.mark.parametrize(
    ("notes", "precision"),
    [('section "GBS Variations", dated 02-25', Precision.FP16), ("dated 02-28", Precision.BF16)],
)
def test_bigscience_went_over_to_bf16(notes: str, precision: Precision) -> None:
    reader = Reader(
        row=row(
            framework="Megatron-DeepSpeed",
            inter_link="Omni-Path 4x100Gb/node (Jean Zay)",
            precision="fp16|bf16",
            notes=notes,
        )
    )
    assert job_of(reader, software_of(reader)).precision is precision
    assert "precision" in reader.assumed


@pytest.mark.parametrize(
    ("release", "notes", "program"),
    [
        ("25.11", "cuda_graph=None", "megatron-bridge-25"),
        ("26.04", "cuda_graph=None", None),
        ("26.06", "preset at tag v0.5.0: cuda_graph=None", None),
        ("26.06", "preset at tag v0.5.0: cuda_graph=full_iteration", "megatron-bridge-graphs"),
        ("26.08", "dropless", "megatron-bridge-graphs"),
    ],
)
def test_a_preset_says_more_than_its_release(release: str, notes: str, program: str | None) -> None:
    reader = Reader(row=row(framework=f"Megatron-Bridge {release} NeMo Container", notes=notes))
    assert software_of(reader).program == program
