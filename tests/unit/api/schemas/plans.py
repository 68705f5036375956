"""Plans of any shape that the domain can have, for properties of their documents."""

from dataclasses import replace

from hypothesis import strategies as st

from planner.strategy import (
    DEFAULT_EXPERT_RANK_ORDER,
    DEFAULT_RANK_ORDER,
    Batch,
    Chunk,
    DeviceRange,
    LayerOffload,
    LayerRange,
    Mesh,
    Offload,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    Sharding,
    ShortPlan,
    Stage,
    StagePlacement,
    TrainingPlan,
    ZeroStage,
)

degrees = st.integers(1, 64)
names = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=12)

meshes = st.builds(
    Mesh,
    data_parallel=degrees,
    tensor_parallel=degrees,
    context_parallel=degrees,
    pipeline_parallel=degrees,
    expert_parallel=degrees,
    expert_tensor_parallel=degrees,
    sequence_parallel=st.booleans(),
    context_parallel_scheme=st.sampled_from(["ring", "all_to_all", "all_gather", "mixed"]),
    all_to_all_degree=degrees,
    rank_order=st.permutations(DEFAULT_RANK_ORDER).map(tuple),
    expert_rank_order=st.permutations(DEFAULT_EXPERT_RANK_ORDER).map(tuple),
)
schedules = st.builds(
    Schedule,
    name=st.sampled_from(ScheduleName),
    virtual_stages=st.integers(1, 8),
    interleave_group_size=st.none() | degrees,
)


@st.composite
def _shardings(draw: st.DrawFn, *, experts: st.SearchStrategy[Sharding | None]) -> Sharding:
    zero_stage = draw(st.sampled_from(ZeroStage))
    return Sharding(
        zero_stage=zero_stage,
        optimizer=draw(degrees) if zero_stage >= ZeroStage.OPTIMIZER else 1,
        gradients=draw(degrees) if zero_stage >= ZeroStage.GRADIENTS else 1,
        parameters=draw(degrees) if zero_stage >= ZeroStage.GRADIENTS else 1,
        reshard_after_forward=draw(st.booleans()),
        gather_dtype=draw(st.none() | names),
        reduce_dtype=draw(st.none() | names),
        experts=draw(experts),
    )


shardings = _shardings(experts=st.none() | _shardings(experts=st.none()))
recomputes = st.builds(Recompute, mode=st.sampled_from([RecomputeMode.NONE, RecomputeMode.FULL])) | st.builds(
    Recompute, mode=st.just(RecomputeMode.SELECTIVE), modules=st.lists(names, max_size=3).map(tuple)
)
offloads = st.builds(Offload, cpu=st.floats(0, 0.5), nvme=st.floats(0, 0.5))
layer_ranges = st.builds(
    LayerRange,
    kind=names,
    first=st.integers(0, 200),
    count=st.integers(1, 100),
    recompute=recomputes,
    offload=st.builds(
        LayerOffload, optimizer=offloads, parameters=offloads, gradients=offloads, activations=offloads
    ),
    mesh=st.none() | meshes,
    sharding=st.none() | shardings,
    of=st.none() | names,
)
chunks = st.builds(
    Chunk, virtual_stage=st.integers(0, 8), layers=st.lists(layer_ranges, max_size=2).map(tuple)
)
placements = st.builds(
    StagePlacement,
    node_group=names,
    devices=st.lists(
        st.builds(DeviceRange, first=st.integers(0, 99), count=degrees, stride=degrees),
        min_size=1,
        max_size=2,
    ).map(tuple),
    data_parallel=degrees,
    tensor_parallel=degrees,
    context_parallel=degrees,
    batch_share=st.floats(0.01, 1),
)


@st.composite
def training_plans(draw: st.DrawFn) -> TrainingPlan:
    """Draw a whole plan of a few stages; nothing says that it makes sense."""
    num_stages = draw(st.integers(1, 3))
    stages = tuple(
        Stage(
            stage=stage,
            placement=draw(st.lists(placements, max_size=2).map(tuple)),
            chunks=draw(st.lists(chunks, min_size=1, max_size=2).map(tuple)),
        )
        for stage in range(num_stages)
    )
    return TrainingPlan(
        mesh=replace(draw(meshes), pipeline_parallel=num_stages),
        batch=Batch(micro_batch_size=draw(degrees), num_micro_batches=draw(degrees)),
        schedule=draw(schedules),
        sharding=draw(shardings),
        stages=stages,
    )


short_plans = st.builds(
    ShortPlan,
    tensor_parallel=degrees,
    pipeline_parallel=degrees,
    context_parallel=degrees,
    expert_parallel=degrees,
    data_parallel=st.none() | degrees,
    micro_batch_size=degrees,
    zero_stage=st.none() | st.integers(0, 3),
    sequence_parallel=st.none() | st.booleans(),
    recompute=st.none() | recomputes,
    layers_per_stage=st.none() | st.lists(st.integers(0, 40), min_size=1, max_size=4).map(tuple),
    node_group=st.none() | names,
    offload=st.dictionaries(st.sampled_from(["optimizer", "activations"]), st.floats(0, 1)),
    extra=st.fixed_dictionaries(
        {}, optional={"expert_tensor_parallel": degrees, "num_micro_batches": degrees}
    ),
)
