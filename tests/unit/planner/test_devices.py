import pytest

from planner.devices import device_aliases, device_by_name, device_facts, device_names
from planner.errors import AmbiguousName, UnknownName


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("a100-sxm4-80gb", "A100-SXM4-80GB"),
        ("NVIDIA-A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-PCIE-80GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB"),
        ("H100 SXM", "H100-SXM5-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("NVIDIA-H200", "H200-SXM-141GB"),
        ("h200", "H200-SXM-141GB"),
        ("B200", "B200-SXM-180GB"),
        ("GB200", "GB200-186GB"),
        ("L4", "L4-24GB"),
        ("L40", "L40-48GB"),
        ("A10", "A10-24GB"),
        ("4090", "RTX-4090-24GB"),
        ("NVIDIA GeForce RTX 3090 Ti", "RTX-3090TI-24GB"),
        ("Tesla-V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("AMD Instinct MI300X", "MI300X-192GB"),
        ("AMD_Instinct_MI300X_OAM", "MI300X-192GB"),
        ("MI250X", "MI250X-128GB"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX-PRO-6000-SERVER-96GB"),
        ("NVIDIA-GeForce-RTX-4090", "RTX-4090-24GB"),
        ("3090", "RTX-3090-24GB"),
        ("2080 Ti", "RTX-2080TI-11GB"),
        ("Tesla-T4", "T4-16GB"),
        ("Tesla V100-SXM3-32GB", "V100-SXM2-32GB"),
        ("NVIDIA GH200 480GB", "GH200-96GB"),
        ("NVIDIA GH200 144G HBM3e", "GH200-141GB"),
        ("NVIDIA B300 SXM6 AC", "B300-SXM-288GB"),
        ("HL-225", "GAUDI2-96GB"),
        ("Intel(R) Arc(TM) Pro B60 Graphics", "ARC-PRO-B60-24GB"),
        ("tpu-v5-lite-podslice", "TPU-v5e"),
        ("tpu-v5p-slice", "TPU-v5p"),
    ],
)
def test_a_device_answers_to_the_names_that_people_and_drivers_use(name: str, device: str) -> None:
    assert device_by_name(name).name == device


@pytest.mark.parametrize("device", device_names())
def test_every_alias_means_the_device_it_stands_for(device: str) -> None:
    assert device_aliases(device)
    assert {device_by_name(alias).name for alias in device_aliases(device)} == {device}


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("A100", {"A100-PCIE-40GB", "A100-PCIE-80GB", "A100-SXM4-40GB", "A100-SXM4-80GB"}),
        ("A100-80GB", {"A100-PCIE-80GB", "A100-SXM4-80GB"}),
        ("NVIDIA A100-SXM4", {"A100-SXM4-40GB", "A100-SXM4-80GB"}),
        ("H100", {"H100-NVL-94GB", "H100-PCIE-80GB", "H100-SXM5-80GB"}),
        ("GH200", {"GH200-141GB", "GH200-96GB"}),
        ("V100", {"V100-PCIE-32GB", "V100-SXM2-16GB", "V100-SXM2-32GB"}),
        ("RTX 6000", {"RTX-6000-ADA-48GB", "RTX-PRO-6000-SERVER-96GB"}),
        ("TPU v5", {"TPU-v5e", "TPU-v5p"}),
        ("Gaudi", {"GAUDI2-96GB", "GAUDI3-128GB"}),
    ],
)
def test_an_ambiguous_name_is_refused_with_the_choices(name: str, choices: set[str]) -> None:
    with pytest.raises(AmbiguousName) as caught:
        device_by_name(name, pointer="/cluster/node_groups/0/device")
    assert set(caught.value.nearest_legal) == choices
    assert caught.value.pointer == "/cluster/node_groups/0/device"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("H1000-SXM", "H100-SXM5-80GB"),
        ("A100-SXN4-80GB", "A100-SXM4-80GB"),
        # Another device, although its name begins like this one's.
        ("H20", "H200-SXM-141GB"),
        ("", None),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_ones(name: str, nearest: str | None) -> None:
    with pytest.raises(UnknownName) as caught:
        device_by_name(name)
    assert caught.value.nearest_legal
    assert nearest is None or nearest in caught.value.nearest_legal


def test_a_slice_of_a_device_is_not_the_device() -> None:
    with pytest.raises(UnknownName):
        device_by_name("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb")


@pytest.mark.parametrize("name", device_names())
def test_every_device_has_memory_rates_and_sources(name: str) -> None:
    device = device_by_name(name)
    assert device.memory_bytes >= 2**32
    assert device.memory_bandwidth_bytes_per_second > 1e11
    assert device.peak_flops_per_second
    assert all(rate > 1e12 for rate in device.peak_flops_per_second.values())
    assert device_facts(name)["sources"]


def test_memory_is_what_the_driver_reports() -> None:
    assert device_by_name("H100-SXM5-80GB").memory_bytes == 81559 * 2**20


def test_all_devices_of_the_datasheet_table_are_there_and_the_dies_of_two_packages() -> None:
    dies = {"MI250-GCD-64GB", "MI250X-GCD-64GB"}
    assert len(set(device_names()) - dies) == 49
    assert dies < set(device_names())


def test_a_die_is_half_of_its_package() -> None:
    package, die = device_by_name("MI250X-128GB"), device_by_name("MI250X-GCD-64GB")
    assert 2 * die.memory_bytes == package.memory_bytes
    assert 2 * die.peak_flops_per_second["bf16"] == package.peak_flops_per_second["bf16"]


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [
        ("B200", {"mxfp8", "nvfp4"}, set()),
        ("MI355X", {"mxfp8", "mxfp4"}, {"nvfp4"}),
        ("H100 SXM", {"fp8"}, {"mxfp8", "nvfp4"}),
        ("V100-SXM2-32GB", {"fp16"}, {"bf16", "tf32"}),
    ],
)
def test_formats_are_those_that_a_device_runs(name: str, has: set[str], lacks: set[str]) -> None:
    peaks = device_by_name(name).peak_flops_per_second.keys()
    assert has <= peaks
    assert not lacks & peaks
