"""A manifest for Kubernetes that measures: an indexed job, one pod for each node, and what names its pods."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from api.cli.documents import bad_option
from api.cli.profile_batch import PORT, BatchJob

NAME: Final = "meshplan-profile"
OUTPUT: Final = PurePosixPath("/profile/profile.json")
SHAPES: Final = PurePosixPath("/shapes/shapes.json")
DEVICE_RESOURCE: Final = "nvidia.com/gpu"
ATTEMPTS: Final = 3
WHY_UPLOAD = "name the service that the job sends its profile to: what a pod keeps goes with it"
WHY_IMAGE = "name a container image with meshplan and torch in it"


def kubernetes_manifest(options: Mapping[str, Any], *, request: Path | None = None) -> str:
    """Return the manifest as JSON, which ``kubectl apply -f`` takes as it takes YAML.

    ``request`` is the list of shapes to measure, which goes with the manifest; None for the usual ladder.
    """
    if not options["upload"]:
        raise bad_option("--upload", WHY_UPLOAD)
    if not options["image"]:
        raise bad_option("--image", WHY_IMAGE)
    inside = Path(SHAPES) if request else None
    job = BatchJob.of(options, output=Path(OUTPUT), request=inside)
    items = [_service(), _job(job, image=options["image"], has_shapes=request is not None)]
    if request is not None:
        items.insert(0, _config_map(request))
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2) + "\n"


def _service() -> dict[str, Any]:
    """Return the service without an address of its own that gives each pod a name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {
            "clusterIP": "None",
            "selector": {"job-name": NAME},
            "ports": [{"name": "meeting", "port": PORT}],
            # The pods meet before any of them is ready.
            "publishNotReadyAddresses": True,
        },
    }


def _config_map(request: Path) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME},
        "data": {SHAPES.name: request.read_text()},
    }


def _job(job: BatchJob, *, image: str, has_shapes: bool) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME},
        "spec": {
            "completionMode": "Indexed",
            "completions": job.nodes,
            "parallelism": job.nodes,
            "backoffLimit": ATTEMPTS * job.nodes,
            "activeDeadlineSeconds": job.limit_minutes * 60,
            "template": {"spec": _pod(job, image=image, has_shapes=has_shapes)},
        },
    }


def _pod(job: BatchJob, *, image: str, has_shapes: bool) -> dict[str, Any]:
    mounts = [
        {"name": "profile", "mountPath": str(OUTPUT.parent)},
        {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - where torch's processes share
    ]
    volumes: list[dict[str, Any]] = [
        {"name": "profile", "emptyDir": {}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    ]
    if has_shapes:
        mounts.append({"name": "shapes", "mountPath": str(SHAPES.parent)})
        volumes.append({"name": "shapes", "configMap": {"name": NAME}})
    container: dict[str, Any] = {
        "name": "profiler",
        "image": image,
        "command": ["bash", "-c", _script(job)],
        "volumeMounts": mounts,
    }
    if not job.is_cpu:
        container["resources"] = {"limits": {DEVICE_RESOURCE: str(job.devices_per_node)}}
    return {
        "subdomain": NAME,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": volumes,
        **_one_on_each_node(),
    }


def _one_on_each_node() -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"job-name": NAME}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _script(job: BatchJob) -> str:
    """Return what each pod runs: measure together, then the first one sends what was measured."""
    upload = shlex.join(["meshplan", "profiles", "upload", str(OUTPUT), "--to", str(job.upload)])
    return (
        "set -e\n"
        f"torchrun --nnodes={job.nodes} --nproc-per-node={job.devices_per_node} "
        f'--node-rank="$JOB_COMPLETION_INDEX" --master-addr={NAME}-0.{NAME} --master-port={PORT} '
        f"-m profiler {shlex.join(job.arguments)}\n"
        f'if [ "$JOB_COMPLETION_INDEX" = 0 ]; then {upload}; fi\n'
    )
