from datetime import UTC, datetime
from uuid import UUID

from api.pages.lists import Cell, clusters_page, devices_page, models_page, plans_page, profiles_page
from api.schemas.catalogue import ClusterEntryDocument, ModelEntryDocument, ProfileSummaryDocument
from api.stores.plans import PlanKind, PlanRecord, PlanState
from tests.unit.api.pages.documents import request

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ID = UUID("3f0f7a52-5b0e-4d3c-9c55-0f4d7e6b8a10")
NBSP = "\N{NO-BREAK SPACE}"


def _texts(row: tuple[Cell, ...]) -> list[str]:
    return [cell.text for cell in row]


def test_a_recent_plan_says_what_was_asked_and_how_it_ended() -> None:
    record = PlanRecord(
        id=ID,
        kind=PlanKind.EVALUATION,
        created_at=NOON,
        state=PlanState.DONE,
        status="fits",
        request=request(),
        request_digest="0",
        result=None,
    )
    page = plans_page([record])
    assert _texts(page.rows[0]) == [
        "llama-3-70b on 64 × h100-sxm",
        "prediction, global batch 1,024 samples, sequence 8,192 tokens",
        "✓ Fits",
        "2026-03-01 12:00 UTC",
    ]
    assert page.rows[0][0].href == f"/plans/{ID}"
    assert page.rows[0][2].tone == "good"


def test_models_and_clusters_lead_to_a_form_with_their_name() -> None:
    model = ModelEntryDocument(name="llama-3-8b", family="llama", parameters=8_030_261_248)
    cluster = ClusterEntryDocument(
        name="local", title="a laptop", device="cpu", devices_per_node=2, is_measured=True
    )
    assert models_page([model]).rows[0][0].href == "/?model_preset=llama-3-8b"
    assert _texts(models_page([model]).rows[0])[-1] == "8.03 billion"
    assert clusters_page([cluster]).rows[0][0].href == "/?cluster_preset=local"
    assert "a measurement" in _texts(clusters_page([cluster]).rows[0])


def test_a_device_shows_what_is_known_of_it() -> None:
    known = {
        "name": "H100",
        "vendor": "nvidia",
        "architecture": "hopper",
        "memory_bytes": 80 * 2**30,
        "memory_bandwidth_bytes_per_second": 3.35e12,
        "peak_flops_per_second": {"bf16": 989e12, "fp16": None},
    }
    assert _texts(devices_page([known]).rows[0])[3:] == [
        f"80.0{NBSP}GiB",
        f"3.35{NBSP}TB/s",
        f"989{NBSP}TFLOP/s",
    ]
    assert _texts(devices_page([{"name": "x", "memory_bytes": 2**30}]).rows[0])[1:] == [
        "",
        "",
        f"1.0{NBSP}GiB",
        "",
        "",
    ]


def test_a_profile_says_how_much_was_measured() -> None:
    profile = ProfileSummaryDocument(
        name="h100-sxm/published",
        device="H100",
        digest="9f2c41d07be3a668",
        built_in=True,
        created_at=NOON,
        software={},
        facts={},
        source=None,
        licence=None,
        num_kernels=12_345,
        num_collectives=67,
        num_transfers=8,
    )
    texts = _texts(profiles_page([profile]).rows[0])
    assert texts[2:] == ["built in", "9f2c41d07be3", "12,345", "67", "8"]


def test_a_list_of_nothing_says_so() -> None:
    assert plans_page([]).rows == ()
    assert plans_page([]).empty == "Nothing has been planned yet."
