"""Requests to try, one click each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A request with a name for its link and a line about it."""

    name: str
    title: str
    request: Mapping[str, Any]

    @property
    def note(self) -> str:
        """Return what is trained in each step."""
        job = self.request["job"]
        return f"batch {job['global_batch_size']:,}, sequence {job['sequence_length']:,}"


def _example(title: str, *, cluster: str, batch: int, sequence: int, forbid: tuple[str, ...] = ()) -> Example:
    model, _, machines = title.partition(" on ")
    preset, _, devices = cluster.partition(":")
    constraints = {"constraints": {"forbid": list(forbid)}} if forbid else {}
    return Example(
        name=f"{model.lower()}-{machines.replace(',', '').replace(' ', '-').lower()}",
        title=title,
        request={
            "model": {"preset": model.lower()},
            "cluster": {"preset": preset, "num_devices": int(devices)},
            "job": {"global_batch_size": batch, "sequence_length": sequence},
            **constraints,
        },
    )


EXAMPLES: Final[Mapping[str, Example]] = {
    example.name: example
    for example in (
        _example("Llama-3-8B on 8 H100", cluster="h100-sxm:8", batch=128, sequence=8192),
        _example("Llama-3-70B on 64 H100", cluster="h100-sxm:64", batch=1024, sequence=8192),
        _example("GPT-3-175B on 1,024 A100", cluster="a100-sxm-80gb:1024", batch=1536, sequence=2048),
        _example("Megatron-1T on 3,072 A100", cluster="a100-sxm-80gb:3072", batch=3072, sequence=2048),
        _example(
            "Llama-3-70B on 8 A100 of 40 GB",
            cluster="a100-sxm-40gb:8",
            batch=8,
            sequence=2048,
            forbid=("offload",),
        ),
    )
}
"""By name."""
