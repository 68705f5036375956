"""This machine and its links profiled: every figure by which the plans are priced."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.closed_loop.models import Model
from benchmarks.closed_loop.network import Network
from benchmarks.closed_loop.plans import request_for, short_plans
from benchmarks.closed_loop.processes import run_ranks
from planner.profile import Profile
from planner.wanted_shapes import measured_in, shapes_of_plans
from profiler.ladder import default_shapes
from profiler.processes import Place
from profiler.shapes import FORMAT, document_of

Document = dict[str, Any]
KERNEL_FACTS = ("program", "ranks", "sustained")
"""Facts that no link changes."""
LADDER_SHARE = 0.5
"""Of the time, what the usual ladder may take; the rest is for what the plans ask for."""


def measured_profile(
    network: Network,
    models: Sequence[Model],
    *,
    folder: Path,
    seconds: float,
    kernels_of: Document | None = None,
) -> Document:
    """Profile the ranks of a network as `meshplan profile` does: a ladder, then what the plans need.

    As many ranks on the same cores have the same kernels over any link: ``kernels_of`` is a profile of them
    that was measured before, so that only collectives are left to measure.
    """
    output = folder / "profile.json"
    ladder = folder / "ladder.json"
    ladder.write_text(json.dumps(_collective_ladder(network)))
    limit = LADDER_SHARE * seconds
    _measure(network, output, folder, seconds=limit, shapes=ladder if kernels_of else None)
    shapes = _shapes(_with_kernels(_read(output), kernels_of), models, network)
    wanted = folder / "shapes.json"
    wanted.write_text(json.dumps(shapes))
    _measure(network, output, folder, seconds=seconds - limit, shapes=wanted)
    return _with_kernels(_read(output), kernels_of)


def _measure(network: Network, output: Path, folder: Path, *, seconds: float, shapes: Path | None) -> None:
    arguments = ["--output", str(output), "--device", "cpu", "--seconds-limit", str(seconds)]
    arguments += ["--name", "here/loop"]
    if shapes is not None:
        arguments += ["--request", str(shapes)]
    run_ranks(network, "profiler", arguments, log=folder / "profiler.log")


def _read(path: Path) -> Document:
    document: Document = json.loads(path.read_text())
    return document


def _with_kernels(document: Document, kernels_of: Document | None) -> Document:
    """Return a profile with the kernels, and what was found out about the host, of another one."""
    if kernels_of is None:
        return document
    others = {name: value for name, value in kernels_of["facts"].items() if name in KERNEL_FACTS}
    return {
        **document,
        "kernels": [*kernels_of["kernels"], *document["kernels"]],
        "facts": {**document["facts"], **others},
    }


def _collective_ladder(network: Network) -> Document:
    """Return the collectives of the usual ladder, and what they cost work beside them."""
    place = Place(world_size=network.ranks, processes_per_node=network.ranks_per_node)
    shapes = default_shapes("cpu", dtype="fp32", place=place)
    return {
        "format": FORMAT,
        "kernels": [],
        "collectives": [document_of(one) for one in shapes.collectives],
        "overlaps": [document_of(one) for one in shapes.overlaps],
    }


def _shapes(document: Document, models: Sequence[Model], network: Network) -> Document:
    """Return the shapes that the plans of all models ask for, those that matter most first."""
    profile = Profile.from_document(document)
    lists = []
    for model in models:
        request = request_for(model, profile, ranks=network.ranks)
        wanted = shapes_of_plans(request, short_plans(model, ranks=network.ranks))
        lists.append(wanted.to_document(without=measured_in(document)))
    return {"format": FORMAT, **{name: _merged(name, lists) for name in ("kernels", "collectives")}}


def _merged(name: str, lists: Sequence[Document]) -> list[Document]:
    rows: dict[str, Document] = {}
    for row in (row for found in lists for row in found[name]):
        rows.setdefault(json.dumps(_named(row), sort_keys=True), row)
    return sorted(rows.values(), key=lambda row: -float(row["influence"]))


def _named(row: Mapping[str, Any]) -> Document:
    return {name: value for name, value in row.items() if name != "influence"}
