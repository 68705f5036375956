"""Settings and requests that planner tests share."""

from planner.cluster_presets import cluster_from_preset
from planner.frameworks import framework_by_name
from planner.job import AttentionKind, Constraints, Job, SolverLimits
from planner.planning import PlanRequest
from planner.profile import builtin_profile
from planner.setting import Setting
from planner.workload.presets import preset_workload


def setting(
    *,
    model: str = "llama-3-8b",
    cluster: str = "h100-sxm",
    num_devices: int = 8,
    global_batch_size: int = 128,
    sequence_length: int = 8192,
    framework: str = "megatron-core",
    version: str | None = None,
    attention: AttentionKind = AttentionKind.FLASH,
    num_layers: int | None = None,
) -> Setting:
    """Return a setting of presets."""
    workload = preset_workload(model)
    return Setting(
        workload=workload.with_num_layers(num_layers) if num_layers else workload,
        cluster=cluster_from_preset(cluster, num_devices),
        job=Job(
            global_batch_size=global_batch_size,
            sequence_length=sequence_length,
            framework=framework,
            framework_version=version,
            attention=attention,
        ),
        framework=framework_by_name(framework, version=version),
    )


def request_of(given: Setting, *, constraints: Constraints | None = None) -> PlanRequest:
    """Return a request with the built-in measurements of the setting's device."""
    names = {
        "A100-SXM4-40GB": "a100-sxm-40gb",
        "A100-SXM4-80GB": "a100-sxm-80gb",
        "H100-SXM5-80GB": "h100-sxm",
        "H200-SXM-141GB": "h200-sxm",
        "B200-SXM-180GB": "b200",
    }
    device = given.cluster.node_groups[0].device.name
    return PlanRequest(
        workload=given.workload,
        cluster=given.cluster,
        job=given.job,
        constraints=constraints or Constraints(),
        solver=SolverLimits(time_limit_seconds=600),
        profiles=(builtin_profile(f"{names[device]}/published"),),
    )
