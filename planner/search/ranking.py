"""Which of two plans that take exactly equal time is preferred: fewest techniques, then degrees."""

from planner.strategy import DEFAULT_RANK_ORDER, ContextParallelScheme, Layout, Mesh, RecomputeMode, ZeroStage


def num_techniques(layout: Layout) -> int:
    """Return how many techniques a layout uses besides plain data parallelism."""
    mesh = layout.mesh
    return sum(
        (
            mesh.tensor_parallel > 1,
            mesh.context_parallel > 1,
            mesh.pipeline_parallel > 1,
            mesh.expert_parallel > 1,
            mesh.sequence_parallel,
            layout.schedule.virtual_stages > 1,
            layout.schedule.name.splits_backward,
            layout.sharding.zero_stage > ZeroStage.NONE,
            layout.sharding.gather_dtype is not None,
            layout.sharding.reduce_dtype is not None,
            any(option.mode is not RecomputeMode.NONE for option in layout.recompute),
            layout.offloads,
        )
    )


def layout_rank(layout: Layout) -> tuple[int, ...]:
    """Return the key by which ties are broken, smallest first."""
    mesh = layout.mesh
    return (
        num_techniques(layout),
        mesh.tensor_parallel,
        mesh.pipeline_parallel,
        mesh.context_parallel,
        layout.schedule.virtual_stages,
        layout.sharding.zero_stage,
        layout.batch.micro_batch_size,
        int(mesh.sequence_parallel),
        len(layout.schedule.name),
        *scheme_rank(mesh),
        int(mesh.rank_order != DEFAULT_RANK_ORDER),
        -layout.sharding.optimizer,
        -layout.sharding.parameters,
        -layout.sharding.gradients,
        int(not layout.sharding.reshard_after_forward),
        min(len(option.modules) for option in layout.recompute) if layout.recompute else 0,
    )


def scheme_rank(mesh: Mesh) -> tuple[int, int]:
    """Return the key by which ways to split attention are preferred, smallest first."""
    return (list(ContextParallelScheme).index(mesh.context_parallel_scheme), mesh.all_to_all_degree)
