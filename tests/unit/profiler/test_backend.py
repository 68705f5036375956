import pytest
import torch

from profiler import host
from profiler.backend import (
    CpuBackend,
    CudaBackend,
    detect_kind,
    is_out_of_memory,
    num_devices,
    open_backend,
    require_memory,
)


def test_half_a_machine_is_another_device_than_all_of_it() -> None:
    whole, half = CpuBackend(processes_per_node=1), CpuBackend(processes_per_node=2)

    assert whole.device_name() == f"cpu-{host.slug(host.cpu_model())}-{host.num_cores()}c"
    assert whole.device_name() != half.device_name()
    assert half.memory_bytes() == whole.memory_bytes() // 2


def test_opening_a_processor_shares_its_cores() -> None:
    threads = torch.get_num_threads()
    try:
        backend = open_backend("cpu", local_rank=0, processes_per_node=2 * host.num_cores())
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)

    assert backend.kind == "cpu"
    assert backend.default_dtype == "fp32"
    assert backend.software().keys() == {"cpu_capability"}


def test_processor_has_no_precision_of_accelerators() -> None:
    backend = CpuBackend(processes_per_node=1)

    assert backend.use_precision("fp32") is torch.float32
    assert backend.use_precision("tf32") is None


def test_processor_is_measured_when_asked_for() -> None:
    assert detect_kind("cpu") == "cpu"
    assert num_devices("cpu") == host.num_cores()


def test_second_accelerator_is_the_device_of_the_second_process() -> None:
    assert CudaBackend(local_rank=1).device == torch.device("cuda", 1)


def test_need_beyond_the_memory_says_both_figures() -> None:
    with pytest.raises(MemoryError, match=r"needs 1000000000000000000 B, where \d+ B are available"):
        require_memory(1e18, CpuBackend(processes_per_node=1))
    require_memory(1, CpuBackend(processes_per_node=1))


@pytest.mark.parametrize(
    ("error", "is_out"),
    [
        (MemoryError("needs more"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
    ],
)
def test_memory_running_out_is_told_from_other_failures(error: Exception, *, is_out: bool) -> None:
    assert is_out_of_memory(error) is is_out


def test_allocation_beyond_all_addresses_is_out_of_memory() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)

    assert is_out_of_memory(caught.value)
