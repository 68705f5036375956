import pytest

from api.database import SessionFactory
from api.stores.devices import DatabaseDeviceStore

H100 = {
    "name": "H100-SXM5-80GB",
    "vendor": "nvidia",
    "architecture": "hopper",
    "memory_bytes": 85_520_809_984,
    "peak_flops_per_second": {"bf16": 989e12},
    "aliases": ["h100-sxm"],
}
HOME_MADE = {"name": "anything", "vendor": None, "architecture": None, "memory_bytes": 2**34}


@pytest.fixture
def devices(sessions: SessionFactory) -> DatabaseDeviceStore:
    return DatabaseDeviceStore(sessions)


@pytest.mark.parametrize("document", [H100, HOME_MADE])
def test_a_device_is_read_back_as_it_was_given(
    devices: DatabaseDeviceStore, document: dict[str, object]
) -> None:
    devices.put([document])
    assert devices.get(str(document["name"])) == document


def test_a_device_replaces_the_one_of_its_name(devices: DatabaseDeviceStore) -> None:
    devices.put([H100])
    devices.put([{"name": H100["name"], "memory_bytes": 1}])
    assert devices.list_all() == [
        {"name": H100["name"], "vendor": None, "architecture": None, "memory_bytes": 1}
    ]


def test_devices_are_listed_by_name(devices: DatabaseDeviceStore) -> None:
    devices.put([HOME_MADE, H100])
    assert [document["name"] for document in devices.list_all()] == ["H100-SXM5-80GB", "anything"]


def test_an_unknown_device_is_none(devices: DatabaseDeviceStore) -> None:
    assert devices.get("H100") is None
