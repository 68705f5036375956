import pytest

from planner.units import GIBIBYTE
from planner.validation.measured import MemoryKind, measured_of
from tests.unit.planner.validation.published import row

NOTHING = {"step_time_s": "", "oom": ""}


def test_a_printed_step_time_is_taken_before_a_rate() -> None:
    assert measured_of(row(step_time_s="0.5", tokens_per_s_per_gpu="1")).step_time_seconds == 0.5


def test_tokens_per_second_make_a_step_time() -> None:
    measured = measured_of(row(step_time_s="", tokens_per_s_per_gpu="8192", gbs="64", gpus="8"))
    assert measured.step_time_seconds == pytest.approx(64 * 2048 / (8192 * 8))


def test_flop_rates_make_none() -> None:
    measured = measured_of(row(**NOTHING, tflops_per_gpu="400", mfu="40"))
    assert measured.step_time_seconds is None
    assert measured.says_nothing


@pytest.mark.parametrize(
    ("cells", "fits"),
    [
        ({**NOTHING, "oom": "no"}, True),
        ({**NOTHING, "oom": "yes"}, False),
        ({**NOTHING, "step_time_s": "1.5"}, True),
        ({**NOTHING, "peak_mem_gib": "40"}, True),
        (NOTHING, None),
    ],
)
def test_what_ran_fitted(cells: dict[str, str], *, fits: bool | None) -> None:
    assert measured_of(row(**cells)).fits is fits


@pytest.mark.parametrize("verdict", ["crash_or_oom", "yes/failed"])
def test_a_failure_of_unknown_cause_proves_nothing(verdict: str) -> None:
    measured = measured_of(row(step_time_s="", oom=verdict))
    assert measured.has_failed_unexplained
    assert measured.fits is None


@pytest.mark.parametrize(
    ("notes", "kind"),
    [
        ("peak_mem=max_memory_allocated; real_reserved=70 GiB", MemoryKind.ALLOCATED),
        ("rounded GB, as seen on the node", MemoryKind.WHOLE),
        ("read from nvidia-smi", MemoryKind.WHOLE),
        ("", MemoryKind.ALLOCATED),
    ],
)
def test_notes_say_what_a_peak_counts(notes: str, kind: MemoryKind) -> None:
    measured = measured_of(row(peak_mem_gib="40", notes=notes))
    assert measured.peak_memory_bytes == 40 * GIBIBYTE
    assert measured.memory_kind is kind


def test_the_log_of_nanotron_prints_what_its_allocator_holds() -> None:
    measured = measured_of(row(framework="nanotron", peak_mem_gib="40"))
    assert measured.memory_kind is MemoryKind.RESERVED
