"""What layers hand on, save and keep: every storage counted once, in the layer that its consumer is in.

A storage that a later layer saves is that layer's input; one that only its own layer saves belongs to the
operator that does. An input that nobody saves is kept only where the layer runs again.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.workload.traced import Volume
from profiler.tracing.blocks import Block
from profiler.tracing.recording import Call, Recording
from profiler.tracing.storages import Storage, View, total

OUTSIDE = -1
"""The layer that makes the inputs of a module."""


@dataclass(kw_only=True, slots=True)
class LayerFlow:
    """What one layer hands on, and what is kept of its inputs; lists of parts."""

    output: list[Volume] = field(default_factory=list)
    saved_input: list[Volume] = field(default_factory=list)
    other_input: list[Volume] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class _Life:
    """One storage: the layer and the call that made it, and what meets it later."""

    storage: Storage
    maker: int
    made_by: Call | None
    readers: set[int] = field(default_factory=set)
    views: dict[int, dict[View, int]] = field(default_factory=lambda: defaultdict(dict))
    savers: list[tuple[int, Call]] = field(default_factory=list)


def flows_of(recording: Recording, blocks: Sequence[Block]) -> tuple[list[LayerFlow], dict[int, Volume]]:
    """Return what each layer hands on and keeps, and what each call saves, by the call's place."""
    flows = [LayerFlow() for _ in blocks]
    saved: dict[int, list[Volume]] = defaultdict(list)
    places = {id(call): place for place, call in enumerate(recording.calls)}
    for life in _lives(recording, blocks).values():
        _hand_on(life, flows)
        saver = _charge(life, flows)
        if saver is not None:
            saved[places[id(saver)]].append(_saved_volume(life, saver))
    return flows, {place: total(volumes) for place, volumes in saved.items()}


def _lives(recording: Recording, blocks: Sequence[Block]) -> dict[int, _Life]:
    lives: dict[int, _Life] = {}

    def life(view: View, layer: int, call: Call | None) -> _Life:
        return lives.setdefault(view.storage.number, _Life(storage=view.storage, maker=layer, made_by=call))

    for layer, block in enumerate(blocks):
        for call in recording.calls[block.start : block.end]:
            for view in call.reads:
                # What only looks at a tensor reads nothing of it yet.
                met = life(view, OUTSIDE, None)
                if not call.is_view:
                    _read(met, view, layer)
            for view in call.writes:
                life(view, layer, call)
            for view in call.saved:
                life(view, OUTSIDE, None).savers.append((layer, call))
    for view in recording.outputs:
        _read(life(view, OUTSIDE, None), view, len(blocks))
    return {number: life for number, life in lives.items() if not life.storage.is_weight}


def _read(life: _Life, view: View, layer: int) -> None:
    life.readers.add(layer)
    life.views[layer][view] = view.elements


def _hand_on(life: _Life, flows: Sequence[LayerFlow]) -> None:
    """Let every layer from the one that made a storage to the one before its last reader hand it on."""
    if life.maker == OUTSIDE:
        return
    for layer in range(life.maker, min(max(life.readers, default=life.maker), len(flows))):
        later: dict[View, int] = {}
        for reader, views in life.views.items():
            if reader > layer:
                later |= views
        flows[layer].output.append(life.storage.volume(sum(later.values())))


def _charge(life: _Life, flows: Sequence[LayerFlow]) -> Call | None:
    """Count a storage that is saved once; return the call that does where it is no input of its layer."""
    consumers = [layer for layer, _ in life.savers if layer != life.maker]
    volume = life.storage.volume()
    if consumers:
        flows[min(consumers)].saved_input.append(volume)
        return None
    outside = [reader for reader in life.readers if reader != life.maker and reader < len(flows)]
    if outside:
        flows[min(outside)].other_input.append(volume)
    return _saver(life) if life.savers else None


def _saver(life: _Life) -> Call:
    """Return the call that a storage is saved by; an attention's output belongs to the product after it."""
    calls = [call for _, call in life.savers]
    return next((call for call in calls if call is not life.made_by), calls[0])


def _saved_volume(life: _Life, saver: Call) -> Volume:
    """Return what is saved: a step's every time, by the step itself or by what stands for all steps."""
    volume = life.storage.volume()
    times = life.made_by.repeat if life.made_by is not None and saver.repeat == 1 else 1
    return total([volume] * times)
