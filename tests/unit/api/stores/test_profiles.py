from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import pytest
from sqlalchemy import func, select

from api.database import SessionFactory
from api.stores.measurements import MEASUREMENT_LISTS
from api.stores.profiles import BuiltInProfileError, DatabaseProfileStore, canonical_profile, profile_digest

KERNEL = {
    "operator": "matrix_product",
    "dtype": "bf16",
    "phase": "forward",
    "shape": {"m": 4096, "n": 4096, "k": 1024},
    "seconds": 1.25e-4,
    "spread_seconds": None,
    "source": "a paper",
    "source_ref": "table 2",
}
COLLECTIVE = {
    "operation": "all_reduce",
    "world_size": 8,
    "ranks_per_node": 8,
    "payload_bytes": 2**34,
    "seconds": 0.07,
    "spread_seconds": 0.001,
    "dtype": "fp16",
    "algorithm": "NCCL 2.27",
    "intra_link": "nvlink3",
    "inter_link": None,
    "source": "a paper",
    "source_ref": "table 3",
}
TRANSFER = {
    "operation": "host_to_device",
    "payload_bytes": 2**29,
    "bytes_per_second": 2.5e10,
    "source": "a paper",
    "source_ref": "table 4",
}


def profile(name: str = "a100/published", **changed: object) -> dict[str, Any]:
    return {
        "format": "meshplan-profile/1",
        "name": name,
        "device": "A100-SXM4-80GB",
        "software": {"torch": "2.13.0"},
        "facts": {"nvlink": True},
        "kernels": [KERNEL],
        "collectives": [COLLECTIVE],
        "transfers": [TRANSFER],
        **changed,
    }


def num_measurements(sessions: SessionFactory) -> int:
    with sessions() as session:
        counts = (select(func.count()).select_from(measured.table) for measured in MEASUREMENT_LISTS)
        return sum(session.scalars(count).one() for count in counts)


@pytest.fixture
def profiles(sessions: SessionFactory) -> DatabaseProfileStore:
    return DatabaseProfileStore(sessions)


@pytest.mark.parametrize(
    "document",
    [
        profile(),
        profile(source="a paper", licence="CC-BY-4.0"),
        profile(kernels=[], collectives=[], transfers=[]),
        profile(kernels=[KERNEL | {"seconds": float(number)} for number in range(1, 50)]),
    ],
)
def test_a_profile_is_read_back_as_it_was_given(
    profiles: DatabaseProfileStore, document: dict[str, Any]
) -> None:
    profiles.add(document)
    assert profiles.get(document["name"]) == document


def test_the_same_profile_again_changes_nothing(
    profiles: DatabaseProfileStore, sessions: SessionFactory
) -> None:
    assert profiles.add(profile()) == profiles.add(profile())
    assert num_measurements(sessions) == 3


def test_the_same_profile_from_many_at_once_is_kept_once(
    profiles: DatabaseProfileStore, sessions: SessionFactory
) -> None:
    with ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(profiles.add, [profile()] * 16))
    assert len(set(numbers)) == 1
    assert num_measurements(sessions) == 3


def test_a_profile_is_the_same_when_its_given_digest_is(profiles: DatabaseProfileStore) -> None:
    digest = "0" * 64
    profiles.add(profile(), digest=digest)
    profiles.add(profile(kernels=[]), digest=digest)
    assert profiles.get("a100/published") == profile()
    assert [summary.digest for summary in profiles.summaries()] == [digest]


def test_another_profile_of_the_same_name_replaces_the_one_before(
    profiles: DatabaseProfileStore, sessions: SessionFactory
) -> None:
    profiles.add(profile())
    profiles.add(profile(kernels=[KERNEL | {"seconds": 1.0}], transfers=[]))
    assert profiles.get("a100/published") == profile(kernels=[KERNEL | {"seconds": 1.0}], transfers=[])
    assert num_measurements(sessions) == 2


def test_a_built_in_profile_is_neither_replaced_nor_deleted(profiles: DatabaseProfileStore) -> None:
    profiles.add(profile(), built_in=True)
    with pytest.raises(BuiltInProfileError, match="a100/published"):
        profiles.add(profile(kernels=[]))
    with pytest.raises(BuiltInProfileError, match="a100/published"):
        profiles.delete("a100/published")
    assert profiles.get("a100/published") == profile()


def test_a_newer_release_replaces_its_built_in_profile(profiles: DatabaseProfileStore) -> None:
    profiles.add(profile(), built_in=True)
    profiles.add(profile(kernels=[]), built_in=True)
    assert profiles.get("a100/published") == profile(kernels=[])


def test_a_profile_added_by_hand_becomes_built_in(profiles: DatabaseProfileStore) -> None:
    profiles.add(profile())
    profiles.add(profile(), built_in=True)
    assert [summary.built_in for summary in profiles.summaries()] == [True]


def test_facts_of_built_in_profiles_are_known_by_name(profiles: DatabaseProfileStore) -> None:
    profiles.add(profile(facts={"shipped": 1}), built_in=True)
    profiles.add(profile("mine", facts={"shipped": 2}))
    assert profiles.built_in_facts() == {"a100/published": {"shipped": 1}}


def test_deleting_a_profile_deletes_its_measurements(
    profiles: DatabaseProfileStore, sessions: SessionFactory
) -> None:
    profiles.add(profile())
    assert profiles.delete("a100/published")
    assert profiles.get("a100/published") is None
    assert num_measurements(sessions) == 0


def test_an_unknown_profile_is_none_and_cannot_be_deleted(profiles: DatabaseProfileStore) -> None:
    assert profiles.get("a100/published") is None
    assert not profiles.delete("a100/published")


def test_profiles_are_found_by_their_device(profiles: DatabaseProfileStore) -> None:
    documents = [profile("b"), profile("a"), profile("c", device="H200")]
    for document in documents:
        profiles.add(document)
    assert profiles.names() == ["a", "b", "c"]
    assert profiles.for_device("A100-SXM4-80GB") == [documents[1], documents[0]]
    assert profiles.for_device("A100") == []


def test_a_summary_counts_the_measurements(profiles: DatabaseProfileStore) -> None:
    profiles.add(profile(kernels=[KERNEL] * 3, source="a paper", licence="MIT"))
    profiles.add(profile("another", device="H200"))
    (summary,) = profiles.summaries(device="A100-SXM4-80GB")
    assert (summary.num_kernels, summary.num_collectives, summary.num_transfers) == (3, 1, 1)
    assert (summary.source, summary.licence, summary.software) == ("a paper", "MIT", {"torch": "2.13.0"})
    assert [known.name for known in profiles.summaries()] == ["a100/published", "another"]


def test_a_summary_gives_the_digest_of_the_document(profiles: DatabaseProfileStore) -> None:
    profiles.add(profile())
    (summary,) = profiles.summaries()
    assert summary.digest == profile_digest(profiles.get("a100/published") or {}) == profile_digest(profile())


def test_left_out_keys_and_whole_numbers_are_the_same_profile() -> None:
    short = {key: value for key, value in KERNEL.items() if value is not None}
    written_out = profile(kernels=[KERNEL | {"seconds": 1.0}])
    assert canonical_profile(profile(kernels=[short | {"seconds": 1}])) == written_out


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kernels": [KERNEL, KERNEL | {"clock": 1}]}, r"kernels\[1\].*clock"),
        ({"collectives": [{"operation": "all_reduce"}]}, r"collectives\[0\].*world_size"),
        ({"transfers": [TRANSFER | {"bytes_per_second": float("nan")}]}, "not JSON compliant"),
    ],
)
def test_a_measurement_that_is_not_of_the_format_is_refused(
    profiles: DatabaseProfileStore, changed: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        profiles.add(profile() | changed)
    assert profiles.names() == []


def test_ten_thousand_measurements_are_stored_within_seconds(profiles: DatabaseProfileStore) -> None:
    document = profile(kernels=[KERNEL | {"shape": {"m": m, "n": 1, "k": 1}} for m in range(10_000)])
    start = perf_counter()
    profiles.add(document)
    stored_seconds = perf_counter() - start
    assert profiles.get("a100/published") == document
    # A third of a second on a quiet machine; row by row it would be tens.
    assert stored_seconds < 5.0
