import json
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UnknownName
from planner.profile import (
    Estimate,
    InvalidProfile,
    Profile,
    Provenance,
    builtin_profile,
    builtin_profile_names,
    builtin_profiles,
)
from tests.unit.planner.profile_documents import collective_row, pass_row, product_row, profile_document

TRANSFER = {"operation": "h2d", "payload_bytes": None, "bytes_per_second": 2.5e10, "source": None}


def small_document() -> dict[str, Any]:
    return profile_document(
        kernels=[
            product_row(128, 256, 512, 1.5e-5),
            product_row(256, 256, 512, 2.5e-5, spread_seconds=1e-7),
            pass_row("add", 4096, 3e-6),
        ],
        collectives=[collective_row(2, 1024, 2e-5), collective_row(2, 2048, 3e-5, inter_link="eth")],
        transfers=[TRANSFER],
    )


def test_a_document_comes_back_as_it_was() -> None:
    document = small_document()
    again = Profile.from_document(document).to_document()

    def key(row: dict[str, Any]) -> str:
        return json.dumps(row, sort_keys=True)

    for kind in ("kernels", "collectives", "transfers"):
        filled = [{"source_ref": None, **row} for row in document[kind]]
        assert sorted(map(key, again[kind])) == sorted(map(key, filled))
    for head in ("format", "name", "device", "software", "facts"):
        assert again[head] == document[head]


def test_a_profile_counts_its_rows_and_finds_its_tables() -> None:
    profile = Profile.from_document(small_document())
    assert profile.num_rows == 6
    (table,) = profile.tables("matrix_product")
    assert table.column("m").tolist() == [128, 256]
    assert math.isnan(table.spread_seconds[0])
    with pytest.raises(KeyError):
        table.column("batch")


def test_the_order_of_rows_does_not_change_the_digest() -> None:
    document = small_document()
    digest = Profile.from_document(document).digest
    shuffled = document | {kind: document[kind][::-1] for kind in ("kernels", "collectives")}
    assert Profile.from_document(shuffled).digest == digest


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["kernels"][0].update(seconds=1.6e-5),
        lambda document: document["kernels"][0].update(source="other"),
        lambda document: document["kernels"].pop(),
        lambda document: document["collectives"][0].update(algorithm="ring"),
        lambda document: document["transfers"].clear(),
        lambda document: document.update(name="bench/other"),
        lambda document: document["facts"].update(cores=2),
    ],
)
def test_other_content_has_another_digest(change: Callable[[dict[str, Any]], None]) -> None:
    changed = small_document()
    change(changed)
    assert Profile.from_document(changed).digest != Profile.from_document(small_document()).digest


def test_a_digest_is_a_sha256() -> None:
    assert len(bytes.fromhex(Profile.from_document(small_document()).digest)) == 32


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"seconds": -1.0}, "seconds is -1.0"),
        ({"seconds": 0}, "above zero"),
        ({"seconds": math.nan}, "finite"),
        ({"seconds": math.inf}, "finite"),
        ({"seconds": "fast"}, "'fast'"),
        ({"seconds": True}, "True"),
        ({"spread_seconds": -1e-6}, "spread_seconds"),
        ({"dtype": "fp17"}, "fp17"),
        ({"phase": "sideways"}, "sideways"),
        ({"operator": ""}, "operator must be a text"),
        ({"operator": ["a"]}, "operator must be a text"),
        ({"shape": {"m": 1, "n": 1}}, "needs k"),
        (
            {"shape": {"m": 1, "n": 1, "k": 1, "batch": 2}},
            "unknown key 'batch' in the shape of a matrix_product",
        ),
        ({"shape": {"m": 1, "n": 1, "kk": 1}}, "'kk' in the shape of a matrix_product; did you mean 'k'?"),
        ({"shape": {"m": 1, "n": 1, "k": -1}}, "k is -1"),
        ({"shape": {"m": 1, "n": 1, "k": 1.5}}, "k is 1.5"),
        ({"shape": {"m": 1, "n": 1, "k": 2**60}}, "must be an integer"),
        ({"shape": [1, 1, 1]}, "shape must be an object"),
        ({"source": 7}, "source must be a text"),
        ({"source": "x" * 1000}, "source must be a text"),
        ({"second": 1.0}, "unknown key 'second'; did you mean 'seconds'?"),
        ({"spread": 1.0, "zeal": 1.0}, "unknown key 'spread'; did you mean 'spread_seconds'?"),
    ],
)
def test_a_bad_kernel_row_is_refused_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    document = small_document()
    document["kernels"][1].update(changes)
    with pytest.raises(InvalidProfile) as caught:
        Profile.from_document(document)
    (refused,) = caught.value.refused
    assert refused.pointer == caught.value.pointer == "/kernels/1"
    assert reason in refused.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"operation": "some_reduce"}, "some_reduce"),
        ({"world_size": 0}, "world_size is 0"),
        ({"ranks_per_node": 4}, "above world_size"),
        ({"payload_bytes": 0}, "payload_bytes is 0"),
        ({"payload_bytes": None}, "payload_bytes is None"),
        ({"ranks": 2}, "unknown key 'ranks'; did you mean 'ranks_per_node'"),
    ],
)
def test_a_bad_collective_row_is_refused_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    document = small_document()
    document["collectives"][0].update(changes)
    with pytest.raises(InvalidProfile, match=reason):
        Profile.from_document(document)


def test_good_rows_are_kept_beside_bad_ones() -> None:
    document = small_document()
    document["kernels"] += [7, {"operator": "add"}]
    document["transfers"].append({"operation": "h2d", "bytes_per_second": 0})
    document["transfers"].append({"operation": "h2d", "bytes_per_second": 1e9, "bytes": 4})
    profile, refused = Profile.read(document)
    assert [row.pointer for row in refused] == ["/kernels/3", "/kernels/4", "/transfers/1", "/transfers/2"]
    assert profile.digest == Profile.from_document(small_document()).digest


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"format": "meshplan-profile/9"}, "/format"),
        ({"name": ""}, "/name"),
        ({"device": None}, "/device"),
        ({"facts": []}, "/facts"),
        ({"software": "torch"}, "/software"),
        ({"colour": "red"}, "/colour"),
        ({"kernels": {"m": 1}}, "/kernels"),
        ({"collectives": "none"}, "/collectives"),
    ],
)
def test_a_document_that_is_no_profile_is_refused(changes: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidProfile) as caught:
        Profile.from_document(small_document() | changes)
    assert caught.value.pointer == pointer


def test_something_else_than_an_object_is_refused() -> None:
    with pytest.raises(InvalidProfile, match="a profile is an object"):
        Profile.from_document([1, 2])  # type: ignore[arg-type]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(json_values, max_size=4), st.sampled_from(["kernels", "collectives", "transfers"]))
def test_no_row_however_odd_ends_in_a_traceback(rows: list[Any], kind: str) -> None:
    profile, refused = Profile.read(small_document() | {kind: rows})
    assert len(refused) == len(rows)
    assert profile.name == "bench/measured"


def test_ten_thousand_rows_are_read_quickly() -> None:
    rows = [product_row(m, n, k, 1e-3) for m in range(1, 101) for n in range(1, 11) for k in range(1, 11)]
    document = profile_document(kernels=rows)
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        Profile.from_document(document)
        best = min(best, time.perf_counter() - start)
    # 50 ms on one core of a laptop; the bound leaves room for a busy machine.
    assert best < 0.5


def test_a_scaled_estimate_keeps_its_provenance_and_error() -> None:
    estimate = Estimate(seconds=2.0, provenance=Provenance.MEASURED, relative_error=0.1)
    assert estimate.scaled(3.0) == Estimate(seconds=6.0, provenance=Provenance.MEASURED, relative_error=0.1)


@pytest.mark.parametrize("profile", builtin_profiles(), ids=lambda profile: profile.name)
def test_a_built_in_profile_reads_back_from_its_document(profile: Profile) -> None:
    assert Profile.from_document(profile.to_document()).digest == profile.digest


@pytest.mark.parametrize("profile", builtin_profiles(), ids=lambda profile: profile.name)
def test_every_row_of_a_built_in_profile_names_a_source_with_a_licence(profile: Profile) -> None:
    licences = profile.facts["licences"]
    document = profile.to_document()
    for kind in ("kernels", "collectives", "transfers"):
        for row in document[kind]:
            assert licences[row["source"]]
            assert row["source_ref"]


def test_the_usual_systems_have_published_measurements() -> None:
    assert set(builtin_profile_names()) >= {
        "a100-sxm-40gb/published",
        "a100-sxm-80gb/published",
        "h100-sxm/published",
        "h200-sxm/published",
        "b200/published",
    }


def test_an_unknown_built_in_profile_is_refused_with_the_choices() -> None:
    with pytest.raises(UnknownName) as caught:
        builtin_profile("h100/published")
    assert "h100-sxm/published" in caught.value.nearest_legal
