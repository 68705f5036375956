"""A Slurm of the test's own on this machine: one node, everything in a folder that goes with the test."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch")
SECONDS = 60

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def is_here() -> bool:
    """Whether this machine has Slurm, and may start it."""
    return os.geteuid() == 0 and all(map(shutil.which, NEEDED))


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """A running Slurm, by the configuration that its commands are given."""

    configuration: Path

    def command(self, *words: str) -> list[str]:
        """Return a command that talks to this Slurm."""
        return ["env", f"SLURM_CONF={self.configuration}", *words]

    def run(self, *command: str) -> str:
        """Return what a command of Slurm says."""
        ended = subprocess.run(
            self.command(*command), capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout + ended.stderr

    def state(self, job: str) -> str:
        """Return the state of a job: RUNNING, COMPLETED, FAILED, ..."""
        said = self.run("scontrol", "show", "job", job)
        return next(word for word in said.split() if word.startswith("JobState=")).partition("=")[2]


@contextmanager
def running_slurm(folder: Path) -> Iterator[Slurm]:
    """Give a Slurm with one node, which is this machine; all its processes end with it."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=socket.gethostname(), folder=folder, ports=_free_ports(2), cpus=os.cpu_count()
        )
    )
    version = 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1
    (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v{version}\nCgroupAutomount=no\n")
    slurm = Slurm(configuration=configuration)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += [_munge(folder), _started(slurm.command("slurmctld", "-D"))]
        processes.append(_started(slurm.command("slurmd", "-D")))
        _wait_until_idle(slurm)
        try:
            yield slurm
        finally:
            _cancel_all(slurm)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(timeout=SECONDS)


def _munge(folder: Path) -> "subprocess.Popen[bytes]":
    """Start munge with a key of its own."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder}/munge.{suffix}" for option, suffix in files.items()]
    # The folder of a test belongs to its user alone; munge wants others to be able to enter.
    return _started(["munged", "--foreground", "--force", *options])


def _started(command: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_until_idle(slurm: Slurm) -> None:
    deadline = time.monotonic() + SECONDS
    while "idle" not in _said(slurm):
        assert time.monotonic() < deadline, "no node became idle"
        time.sleep(0.2)


def _cancel_all(slurm: Slurm) -> None:
    """End what still runs, so that no process of a job stays behind."""
    for job in slurm.run("squeue", "-h", "-o", "%A").split():
        slurm.run("scancel", job)
    deadline = time.monotonic() + SECONDS
    while slurm.run("squeue", "-h"):
        assert time.monotonic() < deadline, "a job does not end"
        time.sleep(0.2)


def _said(slurm: Slurm) -> str:
    ended = subprocess.run(
        slurm.command("sinfo", "-h", "-o", "%t"), capture_output=True, text=True, check=False
    )
    return ended.stdout


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
