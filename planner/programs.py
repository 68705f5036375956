"""Training programs and forks whose traits differ from those of the framework that they are built on."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner.errors import InvalidRequest
from planner.footprints import footprint_of
from planner.framework import Framework
from planner.frameworks import MEGATRON_BRIDGE, MEGATRON_CORE, MEGATRON_DEEPSPEED, framework_by_name
from planner.parameters import compiled_pace, pace_of

MEGATRON_LM: Final = replace(
    MEGATRON_CORE,
    # --overlap-grad-reduce and --overlap-param-gather of pretrain_gpt.py are off unless given.
    overlaps_gradient_reduction=False,
    overlaps_parameter_gather=False,
    pace=pace_of("megatron-lm"),
)
PROGRAMS: Final[Mapping[str, Framework]] = {
    "megatron-lm": MEGATRON_LM,
    # Transformer Engine's linear layers wait for their collectives unless --tp-comm-overlap is given.
    "megatron-lm-te": replace(
        MEGATRON_LM, hides_tensor_parallel_backward=False, pace=pace_of("megatron-lm-te")
    ),
    # Full-iteration CUDA graphs, as recipes for experts have them from release 26.06 on: no launch waits for
    # the host, no token count is read back, experts' traffic runs beside computation.
    "megatron-bridge-graphs": replace(MEGATRON_BRIDGE, pace=pace_of("megatron-bridge-graphs")),
    "megatron-bridge-25": replace(MEGATRON_BRIDGE, pace=pace_of("megatron-bridge-25")),
    # The recipes of NeMo before Megatron Bridge: experts' traffic waits for nothing and hides behind nothing.
    "nemo": replace(MEGATRON_BRIDGE, pace=pace_of("nemo")),
    "nemo-24": replace(MEGATRON_BRIDGE, pace=pace_of("nemo-24")),
    # BigScience's fork trained with CUDA_LAUNCH_BLOCKING=1 (chronicles of tr11-176B): a kernel runs alone.
    "bigscience": replace(
        MEGATRON_DEEPSPEED,
        hides_tensor_parallel_backward=False,
        pace=pace_of("bigscience"),
        footprint=footprint_of("bigscience"),
    ),
    # Sailor's fork on Grace hosts, without Megatron's compiled softmax.
    "sailor": replace(MEGATRON_DEEPSPEED, pace=pace_of("sailor")),
}
"""By a name of our own, which stands where a job names the version of its framework."""


def program_of(name: str, version: str | None) -> str:
    """Return the name under which parameters know a framework, or the program that a version names."""
    program = PROGRAMS.get(version or "")
    return version if version and program is not None and program.name == name else name


def traits_of(
    name: str, version: str | None, *, compiled: bool = False, pointer: str = "/job/framework"
) -> Framework:
    """Return the traits of a framework, or of a program on it where the version names one.

    Raises UnknownName with the nearest names for an unknown framework, InvalidRequest where it does not
    compile its layers and shall.
    """
    program = program_of(name, version)
    traits = PROGRAMS.get(program) or framework_by_name(name, version=version, pointer=pointer)
    return _compiled(traits) if compiled and not traits.always_compiled else traits


def _compiled(traits: Framework) -> Framework:
    """Return a framework whose layers run compiled: passes fused, or launches replayed as CUDA graphs."""
    if traits.compiled_as is None:
        raise InvalidRequest(
            f"{traits.name} does not compile its layers", pointer="/job/compile", nearest_legal=(False, None)
        )
    pace = compiled_pace(traits.pace, traits.compiled_as)
    kept = traits.kept.compiled() if traits.compiled_as == "torch-compile" else traits.kept
    return replace(traits, pace=pace, kept=kept)
