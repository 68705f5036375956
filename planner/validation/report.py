"""The accuracy report: figures of merit of every file, of its parts, and of all files together."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Final

from planner.validation import metrics
from planner.validation.comparison import (
    Comparison,
    fit_comparison,
    memory_comparison,
    step_time_comparison,
)
from planner.validation.evaluation import Outcome
from planner.validation.rows import Row
from planner.validation.software import precision_label

Report = dict[str, Any]
"""A JSON object: figures by name, null where there is nothing to compute them from."""

CHOICE_COLUMNS: Final = (
    "layers",
    "hidden",
    "ffn_hidden",
    "heads",
    "kv_heads",
    "vocab",
    "experts",
    "top_k",
    "seq_len",
    "device",
    "device_mem_gib",
    "gpus",
)
"""Rows that agree on these train the same model on as many of the same devices: the runs among which a
planner would choose. They are compared by their time per token, as their batches may differ."""


def validation_document(files: Mapping[str, Sequence[Outcome]]) -> Report:
    """Return the whole report: all files together, and each by its name."""
    everything = [outcome for outcomes in files.values() for outcome in outcomes]
    return {
        "all": report(everything),
        "files": {name: report(outcomes) for name, outcomes in files.items()},
    }


def report(outcomes: Sequence[Outcome]) -> Report:
    """Return the figures of some rows, and of their parts by precision, kind of model and device."""
    parts: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        for label in part_labels(outcome.row, assumed=_assumed(outcome)):
            parts.setdefault(label, []).append(outcome)
    return {
        **figures(outcomes),
        "parts": {label: figures(members) for label, members in sorted(parts.items())},
    }


def figures(outcomes: Sequence[Outcome]) -> Report:
    """Return the figures of some rows; errors are fractions, times and bytes nowhere."""
    used = [outcome for outcome in outcomes if outcome.skipped is None]
    return {
        "rows": len(outcomes),
        "used": len(used),
        "skipped": _counted(outcome.skipped for outcome in outcomes if outcome.skipped is not None),
        "step_time": step_time_figures(used),
        "memory": memory_figures(used),
        "fits": fit_figures(used),
        "assumed": _counted(
            column for outcome in used if outcome.question for column in sorted(outcome.question.assumed)
        ),
        "noise": noise_figures(outcomes),
    }


def step_time_figures(outcomes: Iterable[Outcome]) -> Report:
    """Return errors, coverage, order and regret of the step times."""
    compared = [(outcome, found) for outcome in outcomes if (found := step_time_comparison(outcome))]
    groups = [
        _choices(group) for group in _grouped((_run(each.row), (each, found)) for each, found in compared)
    ]
    return {
        **_error_figures([found for _, found in compared]),
        "kendall_tau": metrics.kendall_tau(groups),
        "regret": metrics.regret(groups),
    }


def memory_figures(outcomes: Iterable[Outcome]) -> Report:
    """Return errors and coverage of the peak memory, and how often it was predicted too low."""
    compared = [found for outcome in outcomes if (found := memory_comparison(outcome))]
    return {
        **_error_figures(compared),
        "underestimated_over_5_percent": metrics.underestimated_share(compared),
    }


def fit_figures(outcomes: Iterable[Outcome]) -> Report:
    """Return how often a fit and its absence were called, and how often wrongly."""
    verdicts = Counter(found for outcome in outcomes if (found := fit_comparison(outcome)) is not None)
    return {
        "rows": verdicts.total(),
        "true_fit": verdicts[True, True],
        "true_oom": verdicts[False, False],
        "false_fit": verdicts[True, False],
        "false_oom": verdicts[False, True],
    }


def noise_figures(outcomes: Iterable[Outcome]) -> Report:
    """Return how much repeats of one configuration differ: what no prediction can be better than."""
    timed = (
        (outcome.row, outcome.measured.step_time_seconds)
        for outcome in outcomes
        if outcome.measured.step_time_seconds is not None
    )
    noise = metrics.pair_noise(_grouped(((row.file, row.configuration), seconds) for row, seconds in timed))
    return {"pairs": len(noise), "median": metrics.median(noise), "p90": metrics.high_quantile(noise)}


def part_labels(row: Row, *, assumed: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the parts of a report that a row belongs to; its model's name fills what is ``assumed``."""
    is_sparse = row.text("experts") not in {"", "0", "1"} or "experts" in assumed
    labels = (precision_label(row.text("precision")), "experts" if is_sparse else "dense", row.text("device"))
    return tuple(label for label in labels if label)


def _assumed(outcome: Outcome) -> frozenset[str]:
    return outcome.question.assumed if outcome.question else frozenset()


def _error_figures(compared: Sequence[Comparison]) -> Report:
    errors = [found.relative_error for found in compared]
    absolute = [abs(error) for error in errors]
    return {
        "rows": len(compared),
        "median_abs_error": metrics.median(absolute),
        "p90_abs_error": metrics.high_quantile(absolute),
        "bias": metrics.median(errors),
        "interval_coverage": metrics.share(found.is_covered for found in compared),
    }


def _run(row: Row) -> Hashable:
    return (row.file, *(row.text(column) for column in CHOICE_COLUMNS))


def _choices(compared: Iterable[tuple[Outcome, Comparison]]) -> list[Comparison]:
    """Return the choices between runs of a model on some devices, by time per token.

    Rows that ask the same, as of several releases, are one choice: it takes their mean, and what they differ
    by is noise, not regret.
    """
    asked: list[tuple[object, list[Comparison]]] = []
    for outcome, found in compared:
        assert outcome.question is not None
        same = (outcome.question.request.job, outcome.question.plan)
        repeats = next((known for question, known in asked if question == same), None)
        if repeats is None:
            asked.append((same, repeats := []))
        repeats.append(_per_token(outcome, found))
    return [_mean(repeats) for _, repeats in asked]


def _mean(repeats: Sequence[Comparison]) -> Comparison:
    return replace(repeats[0], measured=fmean(found.measured for found in repeats))


def _per_token(outcome: Outcome, seconds: Comparison) -> Comparison:
    """Return step times as times per token."""
    assert outcome.question is not None
    job = outcome.question.request.job
    return seconds.scaled(1 / (job.global_batch_size * (job.sequence_length or 1)))


def _grouped(members: Iterable[tuple[Hashable, Any]]) -> list[list[Any]]:
    groups: dict[Hashable, list[Any]] = {}
    for key, member in members:
        groups.setdefault(key, []).append(member)
    return list(groups.values())


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())
