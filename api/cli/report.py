"""A result as a person reads it on a terminal: numbers, where time and memory go, stages, proof, reasons."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from api.cli.tables import output_console
from api.pages.alternatives import alternative_rows
from api.pages.headline import headline
from api.pages.memory_chart import NAMES as MEMORY_NAMES
from api.pages.plan_words import plan_line, plan_sentences, world_size
from api.pages.proof import certificate_view, provenance_view
from api.pages.quantities import bytes_scale, count, percent
from api.pages.request_summary import request_summary, words
from api.pages.sensitivity import sensitivity_rows
from api.pages.shortage import shortage_rows
from api.pages.stage_table import SHOWN_STAGES, stage_rows
from api.pages.time_chart import time_chart
from api.pages.verdict import verdict

Document = Mapping[str, Any]

TONES: Final = {"good": "bold green", "warn": "bold yellow", "bad": "bold red"}
BAR_WIDTH: Final = 24
FULL_BLOCK: Final = "\N{FULL BLOCK}"


def write_report(document: Document) -> None:
    """Write a result document to standard output, for a person."""
    console = output_console()
    for section in sections(document):
        console.print(section)
        console.print()


def sections(document: Document) -> Iterator[RenderableType]:
    """Yield the sections of a report that have something to say, most important first."""
    yield _title(document)
    yield from _broken_rules(document)
    yield from _shortage(document)
    prediction, plan = document["prediction"], document["plan"]
    if prediction is not None:
        yield _headline(prediction)
    if plan is not None:
        yield _plan(plan)
    if prediction is not None:
        yield _time(prediction)
        yield from _memory(prediction)
    if plan is not None:
        yield from _stages(plan, prediction)
    yield from _proof(document)
    yield from _sentences("Why", [entry["text"] for entry in document["explanation"]])
    yield from _alternatives(document)
    yield from _sensitivity(document)
    yield from _provenance(document)
    yield from _sentences("Warnings", document["warnings"])


def _title(document: Document) -> RenderableType:
    summary, ended = request_summary(document["request"]), verdict(document)
    facts = " · ".join(f"{name} {value}" for name, value in summary.facts)
    return Group(
        Text.from_markup(f"[bold]{escape(summary.model)}[/] on [bold]{escape(summary.machines)}[/]"),
        Text(facts, style="dim"),
        Text.from_markup(
            f"[{TONES[ended.tone]}]{ended.sign} {escape(ended.word)}[/] {escape(ended.sentence)}"
        ),
    )


def _headline(prediction: Document) -> RenderableType:
    table = _grid("", "", "")
    for figure in headline(prediction):
        table.add_row(figure.name, Text(f"{figure.number} {figure.unit}", style="bold"), figure.note)
    return table


def _plan(plan: Document) -> RenderableType:
    title = f"The plan: {plan_line(plan)} · {count(world_size(plan))} devices"
    return _titled(title, Text("\n".join(plan_sentences(plan))))


def _time(prediction: Document) -> RenderableType:
    chart = time_chart(prediction)
    widths = {segment.key: segment.width for segment in chart.segments}
    table = _grid("", f"{chart.unit}", "%", "")
    for part in chart.parts:
        if not part.is_nothing:
            table.add_row(part.name, part.number, part.share, _bar(widths.get(part.key, 0.0) / 100))
    table.add_row("Step", chart.total.number, "100", "", style="bold")
    return _titled("Where the time goes", table)


def _memory(prediction: Document) -> Iterator[RenderableType]:
    """Yield the memory of each stage by kind, those in the middle of many left out."""
    memory = prediction["memory"]
    if not memory:
        return
    scale = bytes_scale(max(stage["capacity_bytes"] for stage in memory))
    kinds = [kind for kind in MEMORY_NAMES if any(stage["breakdown_bytes"][kind] for stage in memory)]
    table = _grid("stage", "peak", "of capacity", "", *(MEMORY_NAMES[kind].lower() for kind in kinds))
    shown = _shown([stage["stage"] for stage in memory], worst=_fullest(memory))
    for stage in memory:
        if stage["stage"] in shown:
            share = stage["peak_bytes"] / stage["capacity_bytes"]
            table.add_row(
                str(stage["stage"]),
                scale.number(stage["peak_bytes"]),
                f"{percent(share, decimals=0)}{'' if stage['fits'] else ' !'}",
                _bar(share, style="green" if stage["fits"] else "red"),
                *(scale.number(stage["breakdown_bytes"][kind]) for kind in kinds),
            )
    capacities = sorted({stage["capacity_bytes"] for stage in memory})
    capacity = " and ".join(str(scale.quantity(capacity)) for capacity in capacities)
    yield _titled(f"Memory per device in {scale.unit}, capacity {capacity}", table, _left_out(memory, shown))


def _stages(plan: Document, prediction: Document | None) -> Iterator[RenderableType]:
    rows = stage_rows(plan, prediction)
    if len(rows) == 1:
        return
    table = _grid("stage", "devices", "layers", "recompute", "chunks")
    shown = _shown([row.stage for row in rows], worst=0)
    for row in rows:
        if row.stage in shown:
            chunks = " | ".join(row.chunks)
            table.add_row(str(row.stage), row.devices, str(row.num_layers), row.recompute, chunks)
    yield _titled("Stages", table, _left_out(rows, shown))


def _proof(document: Document) -> Iterator[RenderableType]:
    view = certificate_view(document["certificate"])
    if view is None:
        return
    table = _grid("", "")
    table.add_row("value", view.value)
    table.add_row("lower bound", f"{view.lower_bound} (gap {view.gap})")
    table.add_row("meshes", view.meshes)
    table.add_row("plans in the space", view.plans_in_space)
    table.add_row("solved in", view.solve_time)
    for how, names in view.dimensions:
        table.add_row(how, ", ".join(names))
    yield _titled("Certificate", Text(view.headline), table)


def _broken_rules(document: Document) -> Iterator[RenderableType]:
    if document["violations"]:
        table = _grid("field", "rule", "nearest legal")
        for violation in document["violations"]:
            nearest = ", ".join(map(str, violation["nearest_legal"]))
            table.add_row(violation["pointer"], violation["rule"], nearest)
        yield _titled("Broken rules", table)


def _shortage(document: Document) -> Iterator[RenderableType]:
    rows = shortage_rows(document)
    if rows:
        table = _grid("resource", "where", "needed", "available", "missing")
        for row in rows:
            table.add_row(row.resource, row.where, row.needed, row.available, row.missing)
        yield _titled("What is missing", table)
    nearest = document["nearest_fit"]
    if nearest is not None:
        changes = ", ".join(f"{pointer} {value}" for pointer, value in nearest["change"].items())
        yield _titled("The nearest fit", Text(f"{changes}: {plan_line(nearest['plan'])}"))


def _alternatives(document: Document) -> Iterator[RenderableType]:
    rows = alternative_rows(document)
    if rows:
        table = _grid("", "step time", "", "plan")
        for row in rows:
            table.add_row(row.why, row.step_time, row.change, row.plan)
        yield _titled("Alternatives", table)


def _sensitivity(document: Document) -> Iterator[RenderableType]:
    rows = sensitivity_rows(document)
    if rows:
        table = _grid("", "step time", "", "best plan then")
        for row in rows:
            table.add_row(row.why, row.step_time, row.change, row.plan)
        yield _titled("Solved again", table)


def _provenance(document: Document) -> Iterator[RenderableType]:
    view = provenance_view(document)
    if view is not None:
        shares = ", ".join(f"{share} {words(key)}" for key, share, _ in view.shares)
        profiles = ", ".join(f"{name} ({digest})" for name, digest in view.profiles) or "no measurements"
        yield _titled("Where the figures come from", Text(f"{shares}\n{profiles}", style="dim"))


def _sentences(title: str, sentences: list[str]) -> Iterator[RenderableType]:
    if sentences:
        yield _titled(title, Text("\n".join(f"- {sentence}" for sentence in sentences)))


def _titled(title: str, *content: RenderableType | None) -> RenderableType:
    inside = Group(*(part for part in content if part is not None))
    return Group(Text(title, style="bold"), Padding(inside, (0, 0, 0, 2), expand=False))


def _grid(*headers: str) -> Table:
    """Return a table without lines; numbers are told apart by their place."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(headers))
    for header in headers:
        table.add_column(header, header_style="dim", overflow="fold")
    return table


def _bar(fraction: float, *, style: str = "cyan") -> Text:
    return Text(FULL_BLOCK * round(BAR_WIDTH * min(fraction, 1.0)), style=style)


def _fullest(memory: list[Mapping[str, Any]]) -> int:
    worst = max(memory, key=lambda stage: float(stage["peak_bytes"] / stage["capacity_bytes"]))
    return int(worst["stage"])


def _shown(stages: list[int], *, worst: int) -> set[int]:
    """Return which of many stages are shown: the first, the last, and the worst between them."""
    if len(stages) <= SHOWN_STAGES:
        return set(stages)
    half = SHOWN_STAGES // 2
    return {*stages[:half], *stages[-half:], worst}


def _left_out(entries: tuple[Any, ...] | list[Any], shown: set[int]) -> RenderableType | None:
    missing = len({*range(len(entries))}) - len(shown)
    return (
        Text(f"{missing} stages between them are left out; --json has all", style="dim")
        if missing > 0
        else None
    )
