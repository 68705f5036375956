"""A request in a few words: which model on which machines, and what else was asked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api.pages.quantities import count, percent


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestSummary:
    """The title's two halves, and the rest as label and value."""

    model: str
    machines: str
    facts: tuple[tuple[str, str], ...]


def request_summary(request: Mapping[str, Any]) -> RequestSummary:
    """Return the summary of a request document, normalised or not."""
    return RequestSummary(
        model=model_name(request["model"]),
        machines=machines_name(request["cluster"]),
        facts=tuple(_facts(request)),
    )


def model_name(model: Mapping[str, Any]) -> str:
    """Return what to call a request's model."""
    depth = f" ({model['num_layers']} layers)" if model.get("num_layers") else ""
    if model.get("preset"):
        return f"{model['preset']}{depth}"
    config = model.get("huggingface") or {}
    name = config.get("_name_or_path") or config.get("model_type") or "layers"
    return f"{name} (own configuration){depth}"


def machines_name(cluster: Mapping[str, Any]) -> str:
    """Return what to call a request's machines."""
    if cluster.get("preset"):
        return f"{count(cluster['num_devices'])} × {cluster['preset']}"
    return " + ".join(_group_name(group) for group in cluster.get("node_groups") or ())


def _group_name(group: Mapping[str, Any]) -> str:
    device = group["device"]
    name = device["name"] if isinstance(device, Mapping) else device
    return f"{count(group['num_nodes'] * group['devices_per_node'])} × {name}"


def _facts(request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    job = request["job"]
    yield "global batch", f"{count(job['global_batch_size'])} samples"
    if job.get("sequence_length"):
        yield "sequence", f"{count(job['sequence_length'])} tokens"
    for key in ("precision", "optimizer", "framework", "framework_version"):
        if job.get(key):
            yield key.replace("_", " "), str(job[key])
    yield from _sample_facts(job)
    yield from _constraint_facts(request.get("constraints") or {})


def _sample_facts(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the images of a sample, and what is trained where that is not everything."""
    if job.get("images_per_sample"):
        yield "images", f"{count(job['images_per_sample'])} per sample"
    if job.get("image_size"):
        yield "image size", f"{count(job['image_size'])} pixels"
    trainable = job.get("trainable") or {}
    if trainable.get("kind") == "lora":
        rank = f" of rank {trainable['rank']}" if trainable.get("rank") else ""
        over = f" over {trainable['base_dtype']} weights" if trainable.get("base_dtype") else ""
        on = f" on {', '.join(trainable['targets'])}" if trainable.get("targets") else ""
        yield "trained", f"adapters{rank}{on}{over}"
    if trainable.get("frozen"):
        yield "frozen", ", ".join(trainable["frozen"])


def _constraint_facts(constraints: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in (constraints.get("fixed") or {}).items():
        yield f"fixed {words(name)}", _fixed_words(value)
    for name, (low, high) in (constraints.get("bounds") or {}).items():
        yield words(name), f"{low} to {high}"
    if constraints.get("forbid"):
        yield "without", ", ".join(map(words, constraints["forbid"]))
    if constraints.get("memory_fraction") is not None:
        yield "safe line", f"{percent(constraints['memory_fraction'], decimals=0)} of memory"


def _fixed_words(value: object) -> str:
    """Return a fixed value; of an object its fields, a name alone by itself."""
    if not isinstance(value, Mapping):
        return str(value)
    said = {key: part for key, part in value.items() if part is not None}
    if list(said) == ["name"]:
        return str(said["name"])
    return ", ".join(f"{words(key)} {_part_words(part)}" for key, part in said.items())


def _part_words(part: object) -> str:
    """Return a field of a fixed object; of shares by tier those that are any."""
    if isinstance(part, Mapping):
        return ", ".join(f"{share:.0%} on the {tier}" for tier, share in part.items() if share)
    return " ".join(map(str, part)) if isinstance(part, list | tuple) else str(part)


def words(name: str) -> str:
    """Return a name of the contract as people read it: ``tensor_parallel`` is "tensor parallel"."""
    return name.replace("_", " ")
