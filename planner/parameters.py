"""Every fitted number of a training program in one place: what it means, its value, what it rests on.

``meshplan validate DIR --neutral`` prints what the error of the runs in DIR becomes when each of them is
set neutral, ``--leave-out`` what it becomes when a source of runs is not there to fit them on.
Numbers of devices and links stand with their measurements (`planner.cost`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from planner.pace import ProgramPace


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """What a parameter is, and in which unit it counts."""

    unit: str
    meaning: str


WIDTHS: Final = frozenset({"spread", "stalled_send_seconds"})
"""Effects that change intervals and no prediction."""
PACE: Final = "time over the measured one"
EFFECTS: Final[Mapping[str, Effect]] = MappingProxyType(
    {
        "products": Effect(
            unit=PACE, meaning="matrix products: what runs between and beside them costs clock and cache"
        ),
        "attention_ampere": Effect(
            unit=PACE, meaning="fused attention on Ampere: FlashAttention-1 reaches half its successors' rate"
        ),
        "attention_hopper": Effect(unit=PACE, meaning="fused attention on Hopper"),
        "memory_passes": Effect(
            unit=PACE, meaning="passes over memory: an eager program launches one for each operation"
        ),
        "unfused_attention": Effect(
            unit=PACE, meaning="passes of an unfused attention core, on top of all passes: casts and masks"
        ),
        "misaligned_attention": Effect(
            unit=PACE, meaning="products of an unfused core whose heads are no multiple of 16 bytes wide"
        ),
        "sink_attention": Effect(
            unit=PACE, meaning="fused attention with a learnt sink in its softmax, on top of fused attention"
        ),
        "tensor_parallel": Effect(
            unit=PACE,
            meaning="visible tensor-parallel collectives: overlap hides them, waiting lengthens them",
        ),
        "expert_parallel": Effect(
            unit=PACE, meaning="visible collectives that bring tokens to experts and back"
        ),
        "data_parallel": Effect(unit=PACE, meaning="gradient reductions and parameter gathers"),
        "crossing_seconds": Effect(
            unit="s per collective and further node",
            meaning="what a tensor-parallel collective between nodes takes more, whatever its bytes",
        ),
        "launch_seconds": Effect(
            unit="s per kernel", meaning="host time to launch a kernel: what small kernels take at the least"
        ),
        "pipelined_launch_seconds": Effect(
            unit="s per kernel and tensor-parallel rank", meaning="what a launch takes more in a pipeline"
        ),
        "serial_host_fraction": Effect(
            unit="share", meaning="of the host's launch time, hidden by no kernel: 1 where launches block"
        ),
        "pass_seconds": Effect(
            unit="s per pass", meaning="what a pipeline stage loses around a pass: input, then first kernels"
        ),
        "step_seconds": Effect(
            unit="s per step", meaning="host work between steps: loss and norm read back, scheduler, data"
        ),
        "spread": Effect(
            unit="width of the interval over that of kernels and links",
            meaning="how far steps of the program stray beside what kernels' errors say",
        ),
        "stalled_send_seconds": Effect(
            unit="s per send",
            meaning="what sends between many devices' stages take in some allocations: reach of the interval",
        ),
    }
)
"""The effects by the name of their field in `ProgramPace`; its default is neutral."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One effect's value in one program (or framework, for all programs on it)."""

    program: str
    effect: str
    value: float
    rests_on: str

    @property
    def is_fitted(self) -> bool:
        """Whether runs showed it."""
        return self.rests_on not in STATED

    @property
    def is_known(self) -> bool:
        """Whether anything showed it, be it runs, kernels or code."""
        return self.rests_on != GUESS

    @property
    def neutral(self) -> float:
        """The value without the effect."""
        return NEUTRAL[self.effect]


NEUTRAL: Final[Mapping[str, float]] = MappingProxyType(
    {field.name: float(field.default) for field in fields(ProgramPace)}  # type: ignore[arg-type]
)
BASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "any": "megatron-core",
        "bigscience": "megatron-deepspeed",
        "composer": "pytorch",
        "deepspeed": "pytorch",
        "maxtext": "pytorch",
        "megatron-bridge": "megatron-core",
        "megatron-bridge-25": "megatron-bridge",
        "megatron-bridge-graphs": "megatron-bridge",
        "megatron-deepspeed": "megatron-core",
        "megatron-lm": "megatron-core",
        "megatron-lm-te": "megatron-lm",
        "nanotron": "megatron-core",
        "nemo": "megatron-bridge",
        "nemo-24": "nemo",
        "sailor": "megatron-deepspeed",
        "torchtitan": "pytorch",
    }
)
"""Whose values a program or framework has where it has none of its own."""

EAGER: Final = frozenset({"composer", "nanotron", "sailor"})
"""Programs that launch a kernel for each operation; the others fuse them."""

GUESS: Final = "a stated guess, as no run shows it apart"
BLOCKING: Final = "its launch scripts, which set CUDA_LAUNCH_BLOCKING=1"
LAUNCHES: Final = (
    "BigScience's steps with launches that block, and with launches that do not (chronicles of tr11)"
)
HIDDEN_EXPERTS: Final = (
    "its recipes, which set moe_a2a_overlap: traffic beside another micro-batch's work shows by what it slows"
)
KORTHIKANTI: Final = "175B, 530B and 1T runs on A100 of Korthikanti et al. (2022), table 5"
BIGSCIENCE: Final = "BigScience's sweeps of 176B to 206B on 384 A100 (chronicles of tr11)"
SAILOR: Final = "Sailor's published steps on 8 to 256 GH200"
NANOTRON: Final = "nanotron's sweep of 1B to 80B on 8 to 64 H100 (Ultra-Scale Playbook)"
NANOTRON_AT_SCALE: Final = (
    "the same sweep on 128 to 512 H100, where sends stall in a quarter to all of the runs"
)
FOUNDRY: Final = "llm-foundry's tables of MPT 125M to 70B on A100 and H100"
DGXC: Final = "NVIDIA's DGX Cloud recipes 25.04 and 25.05 on 8 to 2048 H100 and GB200"
NEMO_24: Final = "NVIDIA's performance tables of NeMo 24.03 and 24.07 in fp8 on 8 to 512 H100"
BRIDGE: Final = "Megatron Bridge's performance tables, releases 26.02 to 26.08"
BRIDGE_25: Final = "Megatron Bridge's performance tables, releases 25.09 and 25.11"
BRIDGE_GRAPHS: Final = (
    "Megatron Bridge's performance tables, experts in full-iteration CUDA graphs, releases 26.06 to 26.08"
)
SIMUMAX: Final = "SimuMax's truncated Llama and DeepSeek models on 8 B200"
SAILOR_LAYERS: Final = "Sailor's profiles of single layers of OPT-350M on GH200"
SAILOR_MASKS: Final = "its attention, which masks scores in one pass and takes their softmax in the next"
STATED: Final = frozenset({GUESS, BLOCKING, LAUNCHES, HIDDEN_EXPERTS, SAILOR_LAYERS, SAILOR_MASKS})
"""Grounds that are no timed steps: what rests on them stays where a source of steps is left out."""


def _of(program: str, rests_on: str, **values: float) -> Iterator[Parameter]:
    """Yield the parameters that rest on one set of runs."""
    for effect, value in values.items():
        yield Parameter(program=program, effect=effect, value=value, rests_on=rests_on)


PARAMETERS: Final[tuple[Parameter, ...]] = (
    *_of("megatron-core", GUESS, launch_seconds=6e-6, step_seconds=4e-3),
    *_of("megatron-core", KORTHIKANTI, pass_seconds=1.25e-3),
    *_of("megatron-core", BIGSCIENCE, misaligned_attention=10.0),
    *_of("megatron-lm", KORTHIKANTI, spread=0.6),
    *_of("megatron-lm-te", SIMUMAX, tensor_parallel=1.5, expert_parallel=2.5),
    *_of("megatron-bridge", DGXC, tensor_parallel=0.5, pass_seconds=0.0),
    *_of(
        "megatron-bridge",
        BRIDGE,
        expert_parallel=0.7,
        sink_attention=3.6,
        spread=0.7,
    ),
    *_of("megatron-bridge-25", BRIDGE_25, products=1.1),
    *_of("nemo", DGXC, products=1.05, expert_parallel=1.5, spread=0.9),
    *_of("nemo-24", NEMO_24, spread=1.2),
    *_of(
        "megatron-bridge-graphs",
        BRIDGE_GRAPHS,
        memory_passes=0.6,
        sink_attention=1.0,
    ),
    # cost.tally has the same share for any communication that runs beside work.
    *_of("megatron-bridge-graphs", HIDDEN_EXPERTS, expert_parallel=0.15),
    *_of("megatron-bridge-graphs", GUESS, launch_seconds=1e-6),
    # What a job's compile changes, whatever the program.
    *_of("cuda-graphs", GUESS, launch_seconds=1e-6),
    *_of("torch-compile", GUESS, memory_passes=1.0),
    # A 200B model on 80 A100 runs at 97.2 TFLOP/s, at 91.0 where each launch waits for its kernel.
    *_of("megatron-deepspeed", LAUNCHES, launch_seconds=6.2e-5),
    *_of(
        "bigscience",
        BIGSCIENCE,
        tensor_parallel=2.6,
        spread=0.7,
    ),
    *_of("bigscience", BLOCKING, serial_host_fraction=1.0),
    *_of("sailor", SAILOR, memory_passes=3.4, spread=0.4),
    # A layer at four tensor-parallel ranks takes 3.4 to 4.1 ms however small its batch: 34 kernels and more.
    *_of("sailor", SAILOR_LAYERS, launch_seconds=9e-5),
    # Values moved forward and backward, (2 + 2) + (3 + 2), over those of one kernel, 2 + 3.
    *_of("sailor", SAILOR_MASKS, unfused_attention=1.8),
    *_of("pytorch", GUESS, launch_seconds=8e-6, pass_seconds=1e-3, step_seconds=4e-3),
    *_of("deepspeed", GUESS, launch_seconds=1e-5),
    *_of("maxtext", GUESS, launch_seconds=1e-6),
    *_of(
        "nanotron",
        NANOTRON,
        products=1.1,
        attention_hopper=1.7,
        memory_passes=3.4,
        data_parallel=2.7,
        crossing_seconds=4e-4,
        launch_seconds=1.2e-4,
        pipelined_launch_seconds=6e-5,
        pass_seconds=0.0,
        spread=0.56,
    ),
    *_of("nanotron", NANOTRON_AT_SCALE, stalled_send_seconds=0.35),
    *_of(
        "composer",
        FOUNDRY,
        attention_ampere=1.9,
        attention_hopper=3.5,
        memory_passes=2.2,
        data_parallel=2.5,
        spread=0.45,
    ),
)
"""All of them; a program's own come before those of what it is based on."""


def lineage(program: str) -> tuple[str, ...]:
    """Return a program and what it is based on, the nearest first."""
    names = [program]
    while names[-1] in BASES:
        names.append(BASES[names[-1]])
    return tuple(names)


COMPILATIONS: Final = frozenset({"cuda-graphs", "torch-compile"})
"""Names under which values stand that hold for compiled layers of any program."""


class OfProgram(Protocol):
    """A parameter of a program, for one effect."""

    @property
    def program(self) -> str:
        """The program, or the framework for all programs on it."""
        ...

    @property
    def effect(self) -> str:
        """The effect that it measures."""
        ...


AnyParameter = TypeVar("AnyParameter", bound=OfProgram)


def nearest_of(program: str, parameters: Iterable[AnyParameter]) -> Mapping[str, AnyParameter]:
    """Return the parameters that hold for a program by effect: its own, else those of what it is based on."""
    given = tuple(parameters)
    found: dict[str, AnyParameter] = {}
    for name in lineage(program):
        for parameter in given:
            if parameter.program == name:
                found.setdefault(parameter.effect, parameter)
    return found


def parameters_of(program: str, parameters: tuple[Parameter, ...] = PARAMETERS) -> Mapping[str, Parameter]:
    """Return the parameters that hold for a program, by effect."""
    return nearest_of(program, parameters)


def pace_of(program: str, parameters: tuple[Parameter, ...] = PARAMETERS) -> ProgramPace:
    """Return the pace of a program or framework by its name."""
    values = {effect: parameter.value for effect, parameter in parameters_of(program, parameters).items()}
    return ProgramPace(**values)


def compiled_pace(
    pace: ProgramPace, name: str, parameters: tuple[Parameter, ...] = PARAMETERS
) -> ProgramPace:
    """Return the pace of a program whose layers are compiled as the parameters under a name say."""
    return replace(pace, **{one.effect: one.value for one in parameters if one.program == name})
