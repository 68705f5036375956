"""A job script for Slurm that measures its nodes: one torchrun on each, one process for each device."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from api.cli.profile_batch import PORT, BatchJob, required_output

WHY_OUTPUT = "name the file that the job writes, on a file system that all its nodes share"


def sbatch_script(options: Mapping[str, Any], *, request: Path | None = None) -> str:
    """Return the script; ``request`` is the list of shapes to measure, None for the usual ladder."""
    job = BatchJob.of(options, output=required_output(options, why=WHY_OUTPUT), request=request)
    return "\n".join([*_head(job), "", *_measure(job), *_upload(job), ""])


def _head(job: BatchJob) -> list[str]:
    devices = [] if job.is_cpu else [f"#SBATCH --gpus-per-node={job.devices_per_node}"]
    return [
        "#!/bin/bash",
        "#SBATCH --job-name=meshplan-profile",
        f"#SBATCH --nodes={job.nodes}",
        "#SBATCH --ntasks-per-node=1",
        *devices,
        "#SBATCH --exclusive",
        f"#SBATCH --time={job.limit_minutes}",
        f"#SBATCH --output={job.output}.log",
        "#SBATCH --open-mode=append",
        "# A job that is taken off its nodes goes on where it stopped, by the journal beside the profile.",
        "#SBATCH --requeue",
    ]


def _measure(job: BatchJob) -> list[str]:
    torchrun = (
        f'exec {shlex.quote(sys.executable)} -m torch.distributed.run --nnodes="$SLURM_NNODES" '
        f'--nproc-per-node={job.devices_per_node} --node-rank="$SLURM_NODEID" '
        f'--master-addr="$MASTER_ADDR" --master-port={PORT} -m profiler "$@"'
    )
    return [
        "set -euo pipefail",
        "# Nodes stand in the order of the network, so that neighbouring ranks are near each other.",
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "export MASTER_ADDR",
        # A step that asks for nothing gets one core.
        f"srun --whole --cpu-bind=none bash -c '{torchrun}' profiler {shlex.join(job.arguments)}",
    ]


def _upload(job: BatchJob) -> list[str]:
    if job.upload is None:
        return []
    command = [sys.executable, "-c", "from api.cli import main; main()"]
    return [shlex.join([*command, "profiles", "upload", str(job.output), "--to", job.upload])]
