"""A plan in words: its degrees as a product, as a paragraph, and as one short line."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.pages.quantities import count

Plan = Mapping[str, Any]

AXES: Final = (
    ("tensor_parallel", "TP", "tensor parallel"),
    ("context_parallel", "CP", "context parallel"),
    ("pipeline_parallel", "PP", "pipeline parallel"),
    ("data_parallel", "DP", "data parallel"),
)
"""The axes whose product is the number of devices."""
END_KINDS: Final = frozenset({"embedding", "norm", "head"})
"""Kinds that stand once, at an end of the model, and have nothing to compute again."""
ZERO_WORDS: Final = {
    0: "no state is sharded",
    1: "optimizer states sharded",
    2: "gradients and optimizer states sharded",
    3: "parameters, gradients and optimizer states sharded",
}

ZERO_NOTES: Final = {
    0: "nothing sharded",
    1: "optimizer sharded",
    2: "gradients sharded too",
    3: "all states sharded",
}
"""The same, short."""

STATE_WORDS: Final = {
    "optimizer": "optimizer states",
    "parameters": "parameters",
    "gradients": "gradients",
    "activations": "activations of some layers",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """One number of the plan: its short name, its value and a note."""

    key: str
    name: str
    value: str
    note: str


def world_size(plan: Plan) -> int:
    """Return the devices that a plan uses."""
    mesh = plan["mesh"]
    product = 1
    for key, _, _ in AXES:
        product *= int(mesh[key])
    return product


def axis_tiles(plan: Plan) -> tuple[Tile, ...]:
    """Return the axes whose product is the number of devices, innermost first."""
    mesh = plan["mesh"]
    order = list(mesh.get("rank_order") or ())
    axes = sorted(AXES, key=lambda axis: order.index(axis[0]) if axis[0] in order else len(order))
    return tuple(
        Tile(key=key, name=short, value=count(mesh[key]), note=_axis_note(plan, key, name))
        for key, short, name in axes
    )


def choice_tiles(plan: Plan) -> tuple[Tile, ...]:
    """Return the rest of what the plan decides."""
    return tuple(_choices(plan))


def plan_line(plan: Plan) -> str:
    """Return a plan on one line: ``TP 4 · PP 4 × 5 · DP 4 · micro-batch 1 · ZeRO-1 · selective``."""
    mesh, schedule = plan["mesh"], plan["schedule"]
    chunks = f" × {schedule['virtual_stages']}" if schedule["virtual_stages"] > 1 else ""
    degrees = [
        f"{short} {mesh[key]}{chunks if key == 'pipeline_parallel' else ''}"
        for key, short, _ in AXES
        if mesh[key] > 1
    ]
    if mesh["expert_parallel"] > 1:
        degrees.append(f"EP {mesh['expert_parallel']}")
    return " · ".join(
        [
            *(degrees or ["one device"]),
            f"micro-batch {plan['batch']['micro_batch_size']}",
            f"ZeRO-{plan['sharding']['zero_stage']}",
            *(f"{dtype} {what}" for what, dtype in _sent(plan["sharding"])),
            recomputation_words(plan),
            *(["offload"] if host_shares(plan) else []),
        ]
    )


def plan_sentences(plan: Plan) -> tuple[str, ...]:
    """Return the plan as sentences, from the cluster down to the layer."""
    return tuple(_sentences(plan))


def recomputation_words(plan: Plan) -> str:
    """Return what backward computes again over all layers: one mode, or how many layers of each."""
    modes = recompute_counts(plan)
    if not modes or set(modes) == {"none"}:
        return "no recomputation"
    if len(modes) == 1:
        return f"{next(iter(modes))} recomputation"
    return "recomputation: " + ", ".join(f"{mode} in {layers} layers" for mode, layers in modes.items())


def recompute_counts(plan: Plan) -> dict[str, int]:
    """Return how many layers run with each mode of recomputation, the most common first."""
    counts: Counter[str] = Counter()
    for stage in plan["stages"]:
        for chunk in stage["chunks"]:
            for layers in chunk["layers"]:
                if layers["kind"] not in END_KINDS and not layers.get("of"):
                    counts[layers["recompute"]["mode"]] += layers["count"]
    return dict(counts.most_common())


def host_shares(plan: Plan) -> dict[str, float]:
    """Return the largest share of each state that any layer keeps on the host, of those that are there."""
    shares: dict[str, float] = {}
    for stage in plan["stages"]:
        for chunk in stage["chunks"]:
            for layers in chunk["layers"]:
                for state, tiers in (layers.get("offload") or {}).items():
                    shares[state] = max(shares.get(state, 0.0), tiers["cpu"])
    return {state: share for state, share in shares.items() if share}


def _axis_note(plan: Plan, key: str, name: str) -> str:
    mesh, virtual_stages = plan["mesh"], plan["schedule"]["virtual_stages"]
    if key == "tensor_parallel" and mesh.get("sequence_parallel"):
        return f"{name}, sequence parallel"
    if key == "pipeline_parallel" and virtual_stages > 1:
        return f"{name}, {virtual_stages} chunks each"
    if key == "context_parallel" and mesh[key] > 1:
        return f"{name}, {mesh['context_parallel_scheme'].replace('_', '-')}"
    return name


def _choices(plan: Plan) -> Iterator[Tile]:
    mesh, batch = plan["mesh"], plan["batch"]
    schedule, sharding = plan["schedule"], plan["sharding"]
    if mesh["expert_parallel"] > 1:
        yield Tile(
            key="expert_parallel", name="EP", value=count(mesh["expert_parallel"]), note="expert parallel"
        )
    yield Tile(
        key="micro_batch_size",
        name="micro-batch",
        value=f"{count(batch['micro_batch_size'])} × {count(batch['num_micro_batches'])}",
        note="samples × passes",
    )
    yield Tile(key="schedule", name="schedule", value=schedule["name"], note="")
    zero = int(sharding["zero_stage"])
    yield Tile(key="zero_stage", name="ZeRO", value=str(zero), note=ZERO_NOTES.get(zero, ""))
    modes = recompute_counts(plan) or {"none": 0}
    yield Tile(key="recompute", name="recompute", value=" + ".join(modes), note=_modules(plan))
    shares = host_shares(plan)
    if shares:
        yield Tile(key="offload", name="offload", value=" + ".join(shares), note=_shares(shares))


def _modules(plan: Plan) -> str:
    modules = {
        module.replace("_", " "): None
        for stage in plan["stages"]
        for chunk in stage["chunks"]
        for layers in chunk["layers"]
        for module in (layers.get("recompute") or {}).get("modules", ())
    }
    return ", ".join(modules)


def _sentences(plan: Plan) -> Iterator[str]:
    mesh, batch, schedule = plan["mesh"], plan["batch"], plan["schedule"]
    yield _replicas(mesh)
    if mesh["tensor_parallel"] > 1:
        along = ", and the sequence between them" if mesh.get("sequence_parallel") else ""
        yield f"Every layer is split over {mesh['tensor_parallel']} devices{along}."
    if mesh["context_parallel"] > 1:
        yield f"Every sequence is split over {mesh['context_parallel']} devices."
    if mesh["pipeline_parallel"] > 1:
        yield _pipeline(mesh, schedule)
    passes = "1 pass" if batch["num_micro_batches"] == 1 else f"{count(batch['num_micro_batches'])} passes"
    yield f"A step is {passes} of {_samples(batch['micro_batch_size'])} through each replica."
    zero = int(plan["sharding"]["zero_stage"])
    if zero:
        yield f"ZeRO-{zero}: {ZERO_WORDS[zero]} over {_shard_sizes(plan['sharding'])} devices."
    for what, dtype in _sent(plan["sharding"]):
        yield f"{dtype} {what} between replicas."
    yield _recomputation_sentence(plan)
    shares = host_shares(plan)
    if shares:
        states = ", ".join(f"{STATE_WORDS[state]} ({share:.0%})" for state, share in shares.items())
        yield f"On the host: {states}."


def _sent(sharding: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what replicas send in a format that is not the framework's default, and the format."""
    for word, what in (("gather_dtype", "gathers"), ("reduce_dtype", "reductions")):
        if sharding.get(word):
            yield what, str(sharding[word])


def _shares(shares: Mapping[str, float]) -> str:
    """Return how much of each state is on the host: one share where all are alike."""
    words = [f"{share:.0%}" for share in shares.values()]
    return f"{words[0] if len(set(words)) == 1 else ', '.join(words)} on the host"


def _replicas(mesh: Mapping[str, Any]) -> str:
    replicas = int(mesh["data_parallel"])
    devices = mesh["tensor_parallel"] * mesh["context_parallel"] * mesh["pipeline_parallel"]
    on = "one device" if devices == 1 else f"{devices} devices"
    if replicas == 1:
        return f"One copy of the model on {on}."
    return f"{count(replicas)} copies of the model, each on {on}, share the batch."


def _pipeline(mesh: Mapping[str, Any], schedule: Mapping[str, Any]) -> str:
    chunks = schedule["virtual_stages"]
    each = f", each in {chunks} chunks," if chunks > 1 else ""
    return f"The layers are spread over {mesh['pipeline_parallel']} stages{each} in {schedule['name']} order."


def _samples(size: int) -> str:
    return "1 sample" if size == 1 else f"{count(size)} samples"


def _shard_sizes(sharding: Mapping[str, Any]) -> str:
    sizes = {sharding[state] for state in ("parameters", "gradients", "optimizer") if sharding[state] > 1}
    return " and ".join(map(count, sorted(sizes))) or "1"


def _recomputation_sentence(plan: Plan) -> str:
    modules = _modules(plan) if "selective" in recompute_counts(plan) else ""
    sentence = recomputation_words(plan)
    return f"{sentence[0].upper()}{sentence[1:]}{f' ({modules})' if modules else ''}."
