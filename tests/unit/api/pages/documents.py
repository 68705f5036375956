"""Result documents as the service gives them, for the pages to show."""

from typing import Any

GIB = 2**30
CAPACITY = 79.6 * GIB
STAGES = 4
CHUNKS = 5


def request() -> dict[str, Any]:
    """Return a request for a large model on a few nodes, with every default filled in."""
    return {
        "model": {"preset": "llama-3-70b"},
        "cluster": {"preset": "h100-sxm", "num_devices": 64},
        "job": {
            "global_batch_size": 1024,
            "sequence_length": 8192,
            "precision": "bf16",
            "optimizer": "adamw",
            "framework": "megatron-core",
        },
        "objective": {"minimize": "step_time"},
        "constraints": {
            "fixed": {},
            "bounds": {},
            "forbid": ["offload"],
            "allow": [],
            "memory_fraction": 0.94,
        },
        "solver": {"time_limit_seconds": 30, "relative_gap": 0.0},
        "profiles": None,
    }


def plan() -> dict[str, Any]:
    """Return an interleaved plan of four stages."""
    return {
        "mesh": {
            "data_parallel": 4,
            "tensor_parallel": 4,
            "context_parallel": 1,
            "pipeline_parallel": STAGES,
            "expert_parallel": 1,
            "expert_tensor_parallel": 1,
            "sequence_parallel": True,
            "context_parallel_scheme": "ring",
            "all_to_all_degree": 1,
            "rank_order": ["tensor_parallel", "context_parallel", "data_parallel", "pipeline_parallel"],
            "expert_rank_order": [
                "expert_tensor_parallel",
                "expert_parallel",
                "data_parallel",
                "pipeline_parallel",
            ],
        },
        "batch": {"micro_batch_size": 1, "num_micro_batches": 256},
        "schedule": {"name": "interleaved", "virtual_stages": CHUNKS, "interleave_group_size": 4},
        "sharding": {
            "zero_stage": 1,
            "parameters": 1,
            "gradients": 1,
            "optimizer": 4,
            "reshard_after_forward": True,
            "gather_dtype": None,
            "reduce_dtype": None,
            "experts": None,
        },
        "stages": [_stage(stage) for stage in range(STAGES)],
    }


def _stage(stage: int) -> dict[str, Any]:
    return {
        "stage": stage,
        "placement": [
            {
                "node_group": "h100-sxm",
                "devices": [{"first": 16 * stage, "count": 16, "stride": 1}],
                "data_parallel": 4,
                "tensor_parallel": 4,
                "context_parallel": 1,
                "batch_share": 1.0,
            }
        ],
        "chunks": [
            {"virtual_stage": chunk, "layers": _layers(stage + STAGES * chunk)} for chunk in range(CHUNKS)
        ],
    }


def _layers(chunk: int) -> list[dict[str, Any]]:
    selective = {"mode": "selective", "modules": ["core_attention"]}
    layers: list[dict[str, Any]] = [
        {"kind": "decoder", "first": 4 * chunk, "count": 4, "recompute": selective}
    ]
    if chunk == 0:
        layers.insert(0, {"kind": "embedding", "first": 0, "count": 1, "recompute": {"mode": "none"}})
    if chunk == STAGES * CHUNKS - 1:
        layers += [{"kind": "norm", "first": 0, "count": 1}, {"kind": "head", "first": 0, "count": 1}]
    return layers


BREAKDOWN = {
    "compute": 104.312,
    "recompute": 3.871,
    "tensor_parallel": 18.004,
    "context_parallel": 0.0,
    "expert_parallel": 0.0,
    "pipeline": 3.118,
    "data_parallel": 0.942,
    "offload": 0.0,
    "bubble": 6.127,
    "optimizer": 0.351,
    "overhead": 0.893,
}


def _memory(stage: int) -> dict[str, Any]:
    breakdown = {
        "parameters": 9.1 * GIB,
        "gradients": 18.2 * GIB,
        "optimizer": 13.6 * GIB,
        "activations": (19.5 - 2.4 * stage) * GIB,
        "logits": 4.1 * GIB if stage == STAGES - 1 else 0.0,
        "buffers": 1.9 * GIB,
        "framework": 3.3 * GIB,
    }
    peak = sum(breakdown.values())
    return {
        "stage": stage,
        "node_group": "h100-sxm",
        "peak_bytes": peak,
        "peak_allocated_bytes": peak - 5.2 * GIB,
        "capacity_bytes": CAPACITY,
        "fits": True,
        "interval_bytes": [0.95 * peak, 1.06 * peak],
        "breakdown_bytes": breakdown,
    }


def prediction(*, slower: float = 1.0) -> dict[str, Any]:
    """Return the prediction of the plan, every duration times ``slower``."""
    breakdown = {key: value * slower for key, value in BREAKDOWN.items()}
    step = sum(breakdown.values())
    tokens = 1024 * 8192 / step
    return {
        "step_time_seconds": step,
        "step_time_interval_seconds": [0.95 * step, 1.06 * step],
        "samples_per_second": 1024 / step,
        "tokens_per_second": tokens,
        "tokens_per_second_per_device": tokens / 64,
        "model_flops_per_second_per_device": 441.2e12 / slower,
        "mfu": 0.4461 / slower,
        "breakdown_seconds": breakdown,
        "memory": [_memory(stage) for stage in range(STAGES)],
        "host": [],
        "cost_per_step": None,
        "energy_joules_per_step": None,
        "fits": True,
        "provenance": {"measured": 0.812, "interpolated": 0.149, "datasheet": 0.039},
    }


def planned() -> dict[str, Any]:
    """Return the result of a search that ended with a proof."""
    step = sum(BREAKDOWN.values())
    return {
        "id": "3f0f7a52-5b0e-4d3c-9c55-0f4d7e6b8a10",
        "version": "0.1.0",
        "request": request(),
        "profiles": [{"name": "h100-sxm/published", "digest": "9f2c41d07be3a6688d14" + "0" * 44}],
        "state": "done",
        "status": "optimal",
        "plan": plan(),
        "violations": [],
        "prediction": prediction(),
        "certificate": {
            "objective": "step_time",
            "unit": "s",
            "value": step,
            "lower_bound": step,
            "relative_gap": 0.0,
            "proven_optimal": True,
            "dimensions": {
                "tensor_parallel": "searched",
                "context_parallel": "fixed by framework",
                "pipeline_parallel": "searched",
                "data_parallel": "searched",
                "micro_batch_size": "searched",
                "virtual_stages": "searched",
                "zero_stage": "searched",
                "recompute": "searched",
                "layers_per_stage": "searched",
                "offload": "fixed by user",
            },
            "meshes": {"total": 4120, "pruned": 4096, "solved": 24},
            "plans_in_space": 1.3e14,
            "solve_seconds": 0.614,
        },
        "alternatives": [
            {"why": "the best without a pipeline", "plan": plan(), "prediction": prediction(slower=1.183)},
            {"why": "the best without recomputation", "plan": plan(), "prediction": prediction(slower=1.021)},
        ],
        "explanation": [
            {
                "text": "Memory binds: stage 0 uses 82 % of its devices, 112 % without recomputation.",
                "pointer": "/prediction/memory/0",
            },
            {
                "text": "Tensor parallelism over 4 rather than 8 devices halves the collectives.",
                "pointer": "/prediction/breakdown_seconds/tensor_parallel",
            },
            {
                "text": "Five chunks per stage bring the bubble from 1.2 % down to 0.2 % of the passes.",
                "pointer": "/prediction/breakdown_seconds/bubble",
            },
        ],
        "warnings": [
            "3.9 % of the time rests on datasheet figures: no measurement of all-gather over 64 ranks."
        ],
        "shortage": [],
        "nearest_fit": None,
    }


def solved_again(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    """Return a result whose request was solved again with something changed; ``changes`` of that entry."""
    document, entry = (
        planned(),
        {
            "why": "tensor_parallel left free",
            "change": {"/constraints/fixed/tensor_parallel": None},
            "status": "optimal",
            "step_time_seconds": 120.0,
            "relative_change": -0.128,
            "changes_plan": True,
            "plan": plan(),
        },
    )
    sentence = {"text": "Keeping tensor_parallel at 4 binds.", "pointer": "/sensitivity/0"}
    return document | {
        "sensitivity": [entry | changes],
        "explanation": [*document["explanation"], sentence],
    }


def evaluated() -> dict[str, Any]:
    """Return the result of an evaluation whose plan needs more memory than there is."""
    document = planned() | {
        "status": "does_not_fit",
        "certificate": None,
        "alternatives": [],
        "explanation": [],
    }
    document["request"] = {key: value for key, value in request().items() if key != "objective"} | {
        "constraints": {"memory_fraction": 0.94},
        "plan": {"tensor_parallel": 4, "pipeline_parallel": 4, "virtual_stages": 5},
    }
    worst = document["prediction"]["memory"][0]
    worst["breakdown_bytes"]["activations"] += 21.5 * GIB
    worst |= {"peak_bytes": worst["peak_bytes"] + 21.5 * GIB, "fits": False}
    worst["interval_bytes"] = [0.95 * worst["peak_bytes"], 1.06 * worst["peak_bytes"]]
    document["prediction"]["fits"] = False
    return document


def illegal() -> dict[str, Any]:
    """Return the result of an evaluation of a plan that breaks rules."""
    return evaluated() | {
        "status": "illegal",
        "plan": None,
        "prediction": None,
        "violations": [
            {
                "pointer": "/plan/tensor_parallel",
                "rule": "64 attention heads are not divisible by 6",
                "nearest_legal": [4, 8],
            }
        ],
    }


def infeasible() -> dict[str, Any]:
    """Return the result of a search that found nothing that fits."""
    return planned() | {
        "status": "infeasible",
        "plan": None,
        "prediction": None,
        "alternatives": [],
        "explanation": [],
        "warnings": [],
        "shortage": [
            {
                "resource": "device_memory",
                "stage": 0,
                "node_group": "a100-sxm-40gb",
                "needed_bytes": 141.2 * GIB,
                "available_bytes": 37.1 * GIB,
            }
        ],
        "nearest_fit": {"change": {"/cluster/num_devices": 32}, "plan": plan()},
    }


def unfinished(state: str = "running") -> dict[str, Any]:
    """Return the document of a request that has no result yet."""
    return {"id": planned()["id"], "version": "0.1.0", "request": request(), "state": state, "status": None}
