"""Ways to send what replicas exchange that a search tries: formats, and parameters that stay gathered.

Formats that send less than the framework's default change numerics, so they take the caller's consent.
Without it none is tried, and a search takes no longer.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final

from planner.communication import (
    CONSENT,
    GATHER,
    REDUCE,
    RESHARD,
    known_formats,
    legal_formats,
    narrows,
    own_format,
)
from planner.errors import IllegalChoice
from planner.search.space import Space
from planner.strategy import Sharding, ZeroStage

FORMATS: Final = (GATHER, REDUCE)


def sent(space: Space, sharding: Sharding) -> Iterator[Sharding]:
    """Yield a sharding as the framework sends by default, then in every other way that may be tried.

    Some of them may break a rule of the framework.
    """
    gathers = _formats(space, sharding, GATHER)
    # Without replicas, too, gradients may rest in what they would be reduced in.
    reductions = _formats(space, sharding, REDUCE)
    for kept, gather, reduction in product(_kept(space, sharding), gathers, reductions):
        yield replace(kept, gather_dtype=gather, reduce_dtype=reduction)


def may_send_otherwise(space: Space) -> bool:
    """Whether any way to send but the framework's default is tried."""
    return is_allowed(space) or any(space.fixed(word) is not None for word in FORMATS)


def is_allowed(space: Space) -> bool:
    """Whether the caller lets a plan send less than the framework's default."""
    return CONSENT in space.constraints.allow


def waits_for_consent(space: Space) -> bool:
    """Whether the framework sends less than by default where the caller lets it, who has not so far."""
    open_words = [word for word in FORMATS if space.fixed(word) is None]
    return not is_allowed(space) and any(_narrower(space, word) for word in open_words)


def keeps_to_what_is_fixed(space: Space, sharding: Sharding) -> bool:
    """Whether a sharding sends, and keeps gathered, what the caller fixed."""
    for word in FORMATS:
        sent_in = getattr(sharding, word) or own_format(space.setting, word)
        if space.fixed(word) not in {None, sent_in}:
            return False
    return space.fixed(RESHARD) in {None, sharding.reshard_after_forward}


def check_consent(space: Space) -> None:
    """Raise IllegalChoice for a fixed format that the framework never sends in, or only with a consent."""
    for word in FORMATS:
        dtype = space.fixed(word)
        if dtype is None:
            continue
        known, pointer = known_formats(space.setting, word), f"/constraints/fixed/{word}"
        if dtype not in known:
            framework, precision = space.setting.framework.name, space.setting.job.precision
            rule = f"{framework} has no {word} of {dtype} in a job of {precision}"
            raise IllegalChoice(rule, pointer=pointer, nearest_legal=known)
        if narrows(space.setting, word, str(dtype)) and not is_allowed(space):
            rule = f"{word} of {dtype} changes numerics: constraints.allow would have to name {CONSENT}"
            raise IllegalChoice(rule, pointer=pointer, nearest_legal=known[:1])


def format_words(space: Space, word: str) -> str:
    """Return how a certificate calls a format of what is sent."""
    own = own_format(space.setting, word)
    if space.fixed(word) is not None:
        return "fixed by user"
    narrower = _narrower(space, word)
    if not narrower:
        return f"fixed by framework: {own}"
    others = " or ".join(narrower)
    if not is_allowed(space):
        return f"not allowed by user: {others} takes the consent {CONSENT}"
    return f"searched: {own}, or {others} where the framework sends it"


def _narrower(space: Space, word: str) -> list[str]:
    """Return the formats that the framework sends in under some sharding and that lose something."""
    known = known_formats(space.setting, word)
    return [dtype for dtype in known if narrows(space.setting, word, dtype)]


def kept_words(space: Space) -> str:
    """Return how a certificate calls whether parameters stay gathered from forward to backward."""
    framework = space.setting.framework
    if space.fixed(RESHARD) is not None:
        return "fixed by user"
    if framework.limits.keeps_gathered is None or ZeroStage.PARAMETERS not in framework.zero_stages:
        return "fixed by framework"
    if _is_stage_two(space):
        return "searched, by zero_stage: stage 2 keeps what is gathered, stage 3 does not"
    return "searched"


def _formats(space: Space, sharding: Sharding, word: str) -> tuple[str | None, ...]:
    """Return the formats that are tried, None for the framework's default."""
    setting, fixed = space.setting, space.fixed(word)
    if fixed is not None:
        return (None if fixed == own_format(setting, word) else str(fixed),)
    if not is_allowed(space) or (word == GATHER and sharding.optimizer == 1):
        return (None,)
    found = legal_formats(setting, sharding, word)[1:]
    return (None, *(dtype for dtype in found if narrows(setting, word, dtype)))


def _kept(space: Space, sharding: Sharding) -> tuple[Sharding, ...]:
    """Return a sharding with parameters freed after forward, and kept, where stage 3 may do either."""
    framework, fixed = space.setting.framework, space.fixed(RESHARD)
    if sharding.parameters == 1 and isinstance(fixed, bool):
        # Nothing is gathered, so nothing speaks against either.
        return (replace(sharding, reshard_after_forward=fixed),)
    if sharding.zero_stage is not ZeroStage.PARAMETERS or sharding.parameters == 1:
        return (sharding,)
    if framework.limits.keeps_gathered is None or (fixed is None and _is_stage_two(space)):
        return (sharding,)
    return (sharding, replace(sharding, reshard_after_forward=False))


def _is_stage_two(space: Space) -> bool:
    """Whether parameters that stay gathered are what the framework's stage 2 is, which is tried as well."""
    framework = space.setting.framework
    is_one = not framework.keeps_master_weights and ZeroStage.GRADIENTS in framework.zero_stages
    return is_one and space.allowed("zero_stage", ZeroStage.GRADIENTS.value)
