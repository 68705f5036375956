"""Orders of small trials."""

from typing import Any

from profiler.trial.order import TrialOrder, read_order

DECODER = {"kind": "decoder", "hidden": 16, "ffn": 24, "heads": 4, "kv_heads": 2, "head_dim": 4}
MESH = {"data_parallel": 1, "tensor_parallel": 1, "context_parallel": 1, "pipeline_parallel": 1}


def chain(*, depth: int = 2, **decoder: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - fields of a layer
    """Return the chain of a small model with some fields of its decoder layers changed."""
    return [
        {"kind": "embedding", "count": 1, "vocabulary": 32, "hidden": 16},
        {**DECODER, "count": depth, **decoder},
        {"kind": "norm", "count": 1, "hidden": 16},
        {"kind": "head", "count": 1, "vocabulary": 32, "hidden": 16},
    ]


def document(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - words of a plan
    """Return an order of one rank; words of the mesh, ``layers``, ``job``, ``sharding`` and ``recompute``."""
    job = {"sequence_length": 8, "precision": "fp32", "parameter_dtype": "fp32", "optimizer": "adamw"}
    recompute = changes.pop("recompute", {"mode": "none", "modules": []})
    parts = {
        "layers": changes.pop("layers", chain()),
        "job": job | changes.pop("job", {}),
        "batch": changes.pop("batch", {"micro_batch_size": 2, "num_micro_batches": 2}),
        "schedule": {"name": "1f1b", "virtual_stages": 1},
        "sharding": {"zero_stage": 0} | changes.pop("sharding", {}),
    }
    decoders = {"kind": "decoder", "first": 0, "count": 2, "recompute": recompute} | changes.pop("range", {})
    ends = [{"kind": kind, "first": 0, "count": 1} for kind in ("embedding", "norm", "head")]
    layers = [ends[0], decoders, *ends[1:]]
    return {
        "layers": parts.pop("layers"),
        "job": parts.pop("job"),
        "plan": {
            "mesh": MESH | changes,
            **parts,
            "stages": changes.pop(
                "stages", [{"stage": 0, "chunks": [{"virtual_stage": 0, "layers": layers}]}]
            ),
        },
    }


def order(**changes: Any) -> TrialOrder:  # noqa: ANN401 - as `document`
    """Return such an order."""
    return read_order(document(**changes))
