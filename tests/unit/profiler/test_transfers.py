from pathlib import Path

import pytest
import torch

from profiler import host
from profiler.backend import CpuBackend
from profiler.drive import DriveRefused
from profiler.operands import Unsupported
from profiler.shapes import TransferShape
from profiler.transfers import prepared_transfer, runs_alone

CPU = CpuBackend(processes_per_node=1)


def transfer(operation: str, payload_bytes: int = 2**12) -> TransferShape:
    return TransferShape(operation=operation, payload_bytes=payload_bytes)


@pytest.mark.parametrize("operation", ["host_copy", "host_copy_all", "cpu_adam", "cpu_adam_1_threads"])
def test_work_of_the_host_runs_again_and_again(operation: str) -> None:
    threads = torch.get_num_threads()
    with prepared_transfer(transfer(operation), CPU, drive_file=None) as prepared:
        assert prepared.stopwatch.seconds(prepared.call, times=3) > 0
    assert torch.get_num_threads() == threads


def test_threads_are_those_asked_for() -> None:
    with prepared_transfer(transfer("cpu_adam_1_threads"), CPU, drive_file=None):
        assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("h2d", "is not measured on cpu"),
        ("teleport", "is not measured on cpu"),
        ("nvme_read", "name one with --drive-file"),
        (f"cpu_adam_{host.num_cores() + 1}_threads", "this machine has"),
    ],
)
def test_what_is_not_here_is_unsupported(operation: str, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        prepared_transfer(transfer(operation), CPU, drive_file=None).__enter__()


def test_memory_that_is_not_there_is_not_taken() -> None:
    with pytest.raises(MemoryError):
        prepared_transfer(transfer("host_copy", 2**60), CPU, drive_file=None).__enter__()


def test_drive_is_asked_through_the_file_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    wanted = transfer("nvme_write", 2**22)

    with pytest.raises(DriveRefused):
        prepared_transfer(wanted, CPU, drive_file=tmp_path / "taken").__enter__()


def test_only_what_says_so_runs_at_once() -> None:
    assert runs_alone(transfer("h2d"))
    assert not runs_alone(transfer("h2d_per_gpu_parallel"))
    assert not runs_alone(transfer("host_copy_all"))
