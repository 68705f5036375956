import os
from pathlib import Path

import pytest

from profiler import host


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("AMD EPYC", "amd-epyc"),
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763"),
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "intel-xeon-platinum-8481c"),
        ("Intel(R) Core(TM) i7-8650U CPU @ 1.90GHz", "intel-core-i7-8650u"),
        ("aarch64", "aarch64"),
    ],
)
def test_slug_keeps_what_tells_models_apart(name: str, slug: str) -> None:
    assert host.slug(name) == slug


def test_cpu_model_is_read_from_the_kernel(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(
        "processor\t: 0\nmodel name\t: Some Chip 9\n\nprocessor\t: 1\nmodel name\t: Some Chip 9\n"
    )

    assert host.cpu_model(info) == "Some Chip 9"


def test_cpu_model_without_a_name_is_the_architecture(tmp_path: Path) -> None:
    assert host.cpu_model(tmp_path / "absent")


@pytest.mark.parametrize(
    ("quota", "most"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", 10**6)]
)
def test_cores_are_cut_by_the_quota_of_the_group(tmp_path: Path, quota: str, most: int) -> None:
    (tmp_path / "cpu.max").write_text(f"{quota}\n")

    assert 1 <= host.num_cores(tmp_path) <= most


def test_memory_is_cut_by_the_limit_of_the_group(tmp_path: Path) -> None:
    everything = host.memory_bytes(tmp_path)
    (tmp_path / "memory.max").write_text("1048576\n")
    (tmp_path / "memory.current").write_text("1000000\n")

    assert everything > 1048576
    assert host.memory_bytes(tmp_path) == 1048576
    assert host.available_bytes(cgroup=tmp_path) == 48576


def test_group_without_a_limit_leaves_what_the_machine_has(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "meminfo").write_text("MemTotal: 2048 kB\nMemAvailable:   1024 kB\n")

    assert host.available_bytes(tmp_path / "meminfo", tmp_path) == 2**20
    assert host.available_bytes(tmp_path / "absent", tmp_path) > 0


def test_each_process_has_an_even_share_of_the_cores() -> None:
    cores = host.num_cores()

    assert host.threads_per_process(1) == cores
    assert host.core_share(1) == f"{cores}c"
    assert host.threads_per_process(2 * cores) == 1
    assert host.core_share(2 * cores) == "0.5c"


def test_cores_in_the_name_of_a_device_say_how_many_share_the_node() -> None:
    cores, own = host.num_cores(), f"cpu-{host.slug(host.cpu_model())}"

    assert host.processes_of_device(f"{own}-{cores}c") == 1
    assert host.processes_of_device(f"{own}-{cores / 2:g}c") == 2
    assert host.processes_of_device(f"{own}-{4 * cores}c") == 1
    assert host.processes_of_device("H100-SXM5-80GB") is None
    assert host.processes_of_device("cpu-other-1c") is None


def test_largest_cache_is_found(tmp_path: Path) -> None:
    for number, size in enumerate(("32K", "1024K", "36864K")):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        (folder / "size").write_text(f"{size}\n")

    assert host.cache_bytes(tmp_path) == 36 * 2**20
    assert host.cache_bytes(tmp_path / "absent") == host.USUAL_CACHE_BYTES


@pytest.mark.parametrize(
    ("cores", "threads"),
    [
        # Each its own, wherever they may run.
        (({0}, {1}), (1.0, 1.0)),
        (({0, 1}, {0, 1}), (1.0, 1.0)),
        # More ranks than cores.
        (({0}, {1}, {0}), (2.0, 1.0, 2.0)),
        (({0, 1}, {0, 1}, {0, 1}, {0, 1}), (2.0, 2.0, 2.0, 2.0)),
        # One that may run anywhere finds one of the cores taken.
        (({0}, {0, 1}), (1.5, 1.0)),
        # More cores than it fills.
        (({0, 1, 2, 3},), (1.0,)),
    ],
)
def test_processes_find_as_many_threads_on_their_cores_as_share_them(
    cores: tuple[set[int], ...], threads: tuple[float, ...]
) -> None:
    uses = [host.CoreUse(machine="a", cores=frozenset(own), threads=1) for own in cores]
    elsewhere = host.CoreUse(machine="b", cores=frozenset({0, 1}), threads=8)
    assert tuple(host.threads_per_core(own, [*uses, elsewhere]) for own in uses) == threads


def test_a_process_knows_the_cores_that_it_may_use() -> None:
    use = host.core_use(3)
    assert (use.cores, use.threads) == (frozenset(os.sched_getaffinity(0)), 3)
    assert use.machine
