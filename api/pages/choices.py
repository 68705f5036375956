"""What may be chosen in the form: models with their sizes, systems with their devices, words."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from api.pages.form_machines import links_inside, networks
from api.pages.quantities import parameters
from api.pages.request_summary import words
from api.schemas.constraints import Technique
from planner.cluster_presets import cluster_preset_document, cluster_preset_names, systems_of
from planner.devices import device_names
from planner.frameworks import FRAMEWORKS
from planner.job import BaseFormat, Precision, TrainableKind
from planner.optimizers import OPTIMIZERS
from planner.strategy import RecomputeMode, ScheduleName
from planner.workload.presets import preset_names, preset_workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """A value, and the text by which people choose it."""

    value: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionGroup:
    """Options that belong together."""

    name: str
    options: tuple[Option, ...]


@cache
def model_groups() -> tuple[OptionGroup, ...]:
    """Return the models by family, smallest first, each with its number of parameters."""
    models = sorted((_family(name), preset_workload(name).parameters, name) for name in preset_names())
    return tuple(
        OptionGroup(
            name=family,
            options=tuple(Option(value=name, text=f"{name} ({parameters(size)})") for _, size, name in own),
        )
        for family, own in groupby(models, key=lambda model: model[0])
    )


@cache
def system_options() -> tuple[Option, ...]:
    """Return the well-known systems, each with its devices."""
    return tuple(Option(value=name, text=f"{name} ({_devices(name)})") for name in cluster_preset_names())


def cluster_options(machines: Iterable[str]) -> tuple[Option, ...]:
    """Return the systems, and the machines that were measured."""
    measured = (Option(value=name, text=f"{name} (measured here)") for name in machines)
    return (*system_options(), *measured)


def word_options() -> dict[str, tuple[Option, ...]]:
    """Return the options of the fields that take one of a few words, by field."""
    return {
        "precision": _options(Precision),
        "optimizer": _options(OPTIMIZERS),
        "framework": _options(FRAMEWORKS),
        "recompute": _options(RecomputeMode),
        "schedule": _options(ScheduleName),
        "sequence_parallel": _options(("yes", "no")),
        "zero_stage": _options(("0", "1", "2", "3")),
        "group_device": _options(device_names()),
        "group_inside": _options(links_inside()),
        "group_network": _options(networks()),
        "trained": (
            Option(value=str(TrainableKind.FULL), text="all parameters"),
            Option(value=str(TrainableKind.LORA), text="low-rank adapters"),
        ),
        "base_dtype": _options(BaseFormat),
        "forbid": tuple(Option(value=str(technique), text=words(technique)) for technique in Technique),
    }


def _options(values: Iterable[str]) -> tuple[Option, ...]:
    return tuple(Option(value=str(value), text=str(value)) for value in values)


def _family(name: str) -> str:
    """Return the part of a preset's name before its size."""
    return name.rsplit("-", 1)[0]


def _devices(name: str) -> str:
    systems = [cluster_preset_document(system) for system in systems_of(name)]
    return " + ".join(f"{system['device']}, {system['devices_per_node']} per node" for system in systems)
