"""The fields of the form: what each is called and where it stands in a request."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from planner.job import Constraints, Job, SolverLimits


class Verb(StrEnum):
    """What the form asks for."""

    PLAN = "plan"
    EVALUATE = "evaluate"


class Kind(StrEnum):
    """What is written into a field."""

    NUMBER = "number"
    WORD = "word"
    FLAG = "flag"
    NAMES = "names"
    JSON = "json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One field of the form; ``path`` is where its value stands in a request to plan."""

    name: str
    label: str
    path: tuple[str, ...]
    kind: Kind = Kind.NUMBER
    hint: str = ""
    placeholder: str = ""
    default: str = ""
    """What a request means that leaves the field out, where the form has to choose something."""
    unit: float = 1.0
    """What a number is counted in, in base units."""


PRESET: Final = "preset"
OWN: Final = "own"
"""The two sources of the model and of the cluster: by name, or the caller's own document."""

DEFAULTS: Final = Job(global_batch_size=1, sequence_length=1)
FIXED_PATH: Final = ("constraints", "fixed")
PLAN_PATH: Final = ("plan",)
ANY: Final = "any"


def _fixed(name: str, label: str, *, kind: Kind = Kind.NUMBER) -> Field:
    return Field(name=name, label=label, path=(*FIXED_PATH, name), kind=kind, placeholder=ANY)


FIXED_FIELDS: Final = (
    _fixed("tensor_parallel", "Tensor parallel"),
    _fixed("context_parallel", "Context parallel"),
    _fixed("pipeline_parallel", "Pipeline parallel"),
    _fixed("data_parallel", "Data parallel"),
    _fixed("virtual_stages", "Chunks per stage"),
    _fixed("micro_batch_size", "Micro-batch size"),
    _fixed("zero_stage", "ZeRO stage"),
    _fixed("recompute", "Recomputation", kind=Kind.WORD),
    _fixed("schedule", "Schedule", kind=Kind.WORD),
    _fixed("sequence_parallel", "Sequence parallel", kind=Kind.FLAG),
)
"""Choices of a plan by their flat words: constraints of a search, or the plan that is evaluated."""

NODE_GROUP_EXAMPLE: Final = """{"node_groups": [{"name": "a", "num_nodes": 4, "devices_per_node": 8, \
"device": "H100-SXM5-80GB", "levels": [
  {"name": "nvlink4", "devices": 8, "bandwidth_bytes_per_second": 450e9, "latency_seconds": 2e-6},
  {"name": "infiniband-ndr", "devices": 32, "bandwidth_bytes_per_second": 50e9, "latency_seconds": 5e-6}
]}]}"""
"""Shown in grey where a document may stand."""
MACHINES: Final = "node_groups"
"""The field for machines as a document."""
GROUP_PATH: Final = ("cluster", "node_groups", "0")
INSIDE_PATH: Final = (*GROUP_PATH, "levels", "0")
NETWORK_PATH: Final = (*GROUP_PATH, "levels", "1")
AS_USUAL: Final = "as usual"
GROUP_FIELDS: Final = (
    Field(name="group_num_nodes", label="Nodes", path=(*GROUP_PATH, "num_nodes")),
    Field(name="group_devices_per_node", label="Devices per node", path=(*GROUP_PATH, "devices_per_node")),
    Field(name="group_device", label="Device", path=(*GROUP_PATH, "device"), kind=Kind.WORD),
    Field(name="group_inside", label="Link in a node", path=(*INSIDE_PATH, "name"), kind=Kind.WORD),
    Field(
        name="group_inside_bandwidth",
        label="Link bandwidth",
        path=(*INSIDE_PATH, "bandwidth_bytes_per_second"),
        hint="GB/s each way",
        placeholder=AS_USUAL,
        unit=1e9,
    ),
    Field(name="group_network", label="Network", path=(*NETWORK_PATH, "name"), kind=Kind.WORD),
    Field(
        name="group_network_bandwidth",
        label="Network bandwidth",
        path=(*NETWORK_PATH, "bandwidth_bytes_per_second"),
        hint="GB/s a device",
        placeholder=AS_USUAL,
        unit=1e9,
    ),
)
"""A node group by its figures; see `form_machines` for what they leave out."""

TRAINED: Final = "trained"
SAMPLE_FIELDS: Final = (
    Field(
        name="images_per_sample",
        label="Images",
        path=("job", "images_per_sample"),
        hint="of one sample",
        placeholder="as the model needs",
    ),
    Field(
        name="image_size",
        label="Image size",
        path=("job", "image_size"),
        hint="pixels a side",
        placeholder="as the model has",
    ),
)
"""What models that see images ask besides."""
TRAINED_FIELDS: Final = (
    Field(
        name=TRAINED,
        label="Trained",
        path=("job", "trainable", "kind"),
        kind=Kind.WORD,
        default=DEFAULTS.trainable.kind,
    ),
    Field(
        name="lora_rank",
        label="Rank of adapters",
        path=("job", "trainable", "rank"),
        placeholder=str(DEFAULTS.trainable.rank),
    ),
    Field(
        name="lora_targets",
        label="Adapters on",
        path=("job", "trainable", "targets"),
        kind=Kind.NAMES,
        hint="q_proj, v_proj",
        placeholder="every product",
    ),
    Field(
        name="base_dtype",
        label="Weights under adapters",
        path=("job", "trainable", "base_dtype"),
        kind=Kind.WORD,
        placeholder="as they compute",
    ),
    Field(
        name="frozen",
        label="Frozen layers",
        path=("job", "trainable", "frozen"),
        kind=Kind.NAMES,
        hint="vision, embedding",
        placeholder="none",
    ),
)
"""Which parameters are trained."""

FIELDS: Final[Mapping[str, Field]] = {
    field.name: field
    for field in (
        Field(name="model_preset", label="Model", path=("model", "preset"), kind=Kind.WORD),
        Field(
            name="model_config",
            label="The model's config.json",
            path=("model", "huggingface"),
            kind=Kind.JSON,
            hint="As on the Hugging Face hub: gpt2, llama, mistral and qwen2 are understood.",
        ),
        Field(
            name="num_layers",
            label="Layers",
            path=("model", "num_layers"),
            placeholder="as the model has",
        ),
        Field(name="cluster_preset", label="System", path=("cluster", "preset"), kind=Kind.WORD),
        Field(name="num_devices", label="Devices", path=("cluster", "num_devices")),
        Field(
            name=MACHINES,
            label="Or as a document",
            path=("cluster", "node_groups"),
            kind=Kind.JSON,
            hint="node groups and between_groups; it counts where it is filled in",
            placeholder=NODE_GROUP_EXAMPLE,
        ),
        *GROUP_FIELDS,
        Field(
            name="node_group",
            label="Plan on node group",
            path=(*FIXED_PATH, "node_group"),
            kind=Kind.WORD,
            hint="of several",
            placeholder=ANY,
        ),
        Field(
            name="global_batch_size",
            label="Global batch",
            path=("job", "global_batch_size"),
            hint="samples per step",
        ),
        Field(
            name="sequence_length", label="Sequence length", path=("job", "sequence_length"), hint="tokens"
        ),
        Field(
            name="precision",
            label="Precision",
            path=("job", "precision"),
            kind=Kind.WORD,
            default=DEFAULTS.precision,
        ),
        Field(
            name="optimizer",
            label="Optimizer",
            path=("job", "optimizer"),
            kind=Kind.WORD,
            default=DEFAULTS.optimizer.name,
        ),
        Field(
            name="framework",
            label="Framework",
            path=("job", "framework"),
            kind=Kind.WORD,
            default=DEFAULTS.framework,
        ),
        *SAMPLE_FIELDS,
        *TRAINED_FIELDS,
        *FIXED_FIELDS,
        Field(
            name="forbid",
            label="A plan without",
            path=("constraints", "forbid"),
            kind=Kind.WORD,
        ),
        Field(
            name="memory_fraction",
            label="Safe line",
            path=("constraints", "memory_fraction"),
            hint="share of device memory",
            placeholder=str(Constraints().memory_fraction),
        ),
        Field(
            name="time_limit_seconds",
            label="Time limit",
            path=("solver", "time_limit_seconds"),
            hint="seconds",
            placeholder=f"{SolverLimits().time_limit_seconds:.0f}",
        ),
        Field(
            name="more",
            label="Anything else of a request",
            path=(),
            kind=Kind.JSON,
            hint='an object, laid over the rest: {"constraints": {"bounds": {"tensor_parallel": [1, 4]}}}',
        ),
    )
}
"""All fields, by name, in the order of the page."""


def path_of(field: Field, verb: Verb) -> tuple[str, ...]:
    """Return where a field stands in the request of a verb."""
    is_choice = field.path[: len(FIXED_PATH)] == FIXED_PATH
    return (*PLAN_PATH, field.name) if verb is Verb.EVALUATE and is_choice else field.path


def field_at(pointer: str, verb: Verb) -> Field | None:
    """Return the field that a JSON pointer falls on, the nearest one around it; None for no field."""
    steps = tuple(pointer.strip("/").split("/"))
    places = {path_of(field, verb): field for field in FIELDS.values() if field.path}
    places |= {
        ("model",): FIELDS["model_preset"],
        ("cluster",): FIELDS["cluster_preset"],
        ("job", "trainable"): FIELDS[TRAINED],
    }
    return next((places[steps[:end]] for end in range(len(steps), 0, -1) if steps[:end] in places), None)
