"""What replicas may send parameters and gradients in, as a framework, a job and its caller have it."""

from typing import Final

from planner.framework import StateFormats
from planner.setting import Setting
from planner.strategy import Sharding, ZeroStage
from planner.wire import WireChoice, WireChoices, WireFormat, chosen, plain_format

CONSENT: Final = "quantized_communication"
"""What a caller allows so that less may be sent than the framework's default says."""
GATHER: Final = "gather_dtype"
REDUCE: Final = "reduce_dtype"
RESHARD: Final = "reshard_after_forward"


def own_gather(setting: Setting) -> WireFormat:
    """Return what gathers move unless told otherwise: parameters as products read them."""
    precision = setting.job.precision
    return plain_format(precision.activation_bytes, precision)


def own_reduction(setting: Setting) -> WireFormat:
    """Return what reductions move unless told otherwise: gradients as they are accumulated."""
    job = setting.job
    widths = setting.framework.widths(
        job.precision, moment_values=job.optimizer.moment_values, formats=StateFormats.of(job)
    )
    return plain_format(widths.gradient, job.precision)


def own_format(setting: Setting, word: str) -> WireFormat:
    """Return a framework's default by the plan's word for it."""
    return own_gather(setting) if word == GATHER else own_reduction(setting)


def choices_of(setting: Setting, word: str) -> WireChoices:
    """Return what else a framework may be told to send, by the plan's word for it."""
    limits = setting.framework.limits
    return limits.gathers if word == GATHER else limits.reductions


def is_asked(setting: Setting, sharding: Sharding, word: str) -> bool:
    """Whether a sharding names another format than the framework's default."""
    dtype = getattr(sharding, word)
    return dtype is not None and dtype != own_format(setting, word)


def choice_of(setting: Setting, sharding: Sharding, word: str) -> WireChoice | None:
    """Return what the framework does for the format that a sharding names; None for its default."""
    if not is_asked(setting, sharding, word):
        return None
    dtype = getattr(sharding, word)
    return chosen(choices_of(setting, word), dtype, sharding, setting.job.precision)


def legal_formats(setting: Setting, sharding: Sharding, word: str) -> tuple[str, ...]:
    """Return the formats that a framework sends in under a sharding, its default first."""
    own = own_format(setting, word)
    others = (
        choice.format
        for choice in choices_of(setting, word)
        if choice.holds(sharding, setting.job.precision) and not is_decided(setting, choice)
    )
    return tuple(dict.fromkeys(str(each) for each in (own, *others)))


def switches(setting: Setting, sharding: Sharding) -> dict[str, str]:
    """Return what a framework has to be told for what a sharding does not by default, by the word for it."""
    found = {}
    for word in (GATHER, REDUCE):
        choice = choice_of(setting, sharding, word)
        if choice is not None:
            found[word] = choice.words
    kept = setting.framework.limits.keeps_gathered
    is_kept = sharding.parameters > 1 and not sharding.reshard_after_forward
    if kept is not None and is_kept and sharding.zero_stage is ZeroStage.PARAMETERS:
        found[RESHARD] = kept
    return found


def is_decided(setting: Setting, choice: WireChoice) -> bool:
    """Whether the job says itself in what gradients are accumulated, and so reduced."""
    return choice.accumulates and setting.framework.allowed(StateFormats.of(setting.job)).gradient is not None


def known_formats(setting: Setting, word: str) -> tuple[str, ...]:
    """Return the formats that a framework sends in under some sharding, at the job's precision."""
    own, precision = own_format(setting, word), setting.job.precision
    others = (each.format for each in choices_of(setting, word) if precision in each.precisions)
    return tuple(dict.fromkeys(str(each) for each in (own, *others)))


def narrows(setting: Setting, word: str, dtype: str) -> bool:
    """Whether a format loses some of what the framework's default sends."""
    return WireFormat(dtype).bytes_per_value < own_format(setting, word).bytes_per_value
