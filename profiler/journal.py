"""The journal of a profile: every sample of every run, a line each, written as it comes.

A profile has medians; the journal beside it has what they were made of, so that a run that was killed
goes on where it stopped, and a later run refines what earlier ones found.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from profiler.outcomes import Outcome, Overlapped, Result, thinned
from profiler.processes import Failure
from profiler.shapes import FORMAT as SHAPES_FORMAT
from profiler.shapes import Wanted, document_of, key_of, list_of, shapes_from_document
from profiler.timing import Timing

SUFFIX = ".journal"
TIME_IS_UP = "time_limit"
"""The reason that says nothing of the shape: another run may have the time."""
OVERLAPPED_TIMINGS = ("collective_alone", "kernels_alone", "collective_together", "kernels_together")


class OtherMachine(ValueError):  # noqa: N818 - reads as what it is
    """A journal of another machine, or of other software, whose figures cannot be pooled with these."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Journal:
    """The file, and what it says: the results of all runs together, and how far the last one came."""

    path: Path
    results: dict[str, Result] = field(default_factory=dict)
    """By `key_of` what was wanted."""
    facts: dict[str, Any] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    """What the run that goes on has dealt with already, by `key_of`."""
    runs: list[str] = field(default_factory=list)

    @property
    def run(self) -> str:
        """The run that goes on."""
        return self.runs[-1]

    def add(self, wanted: Wanted, outcome: Outcome) -> None:
        """Keep what came of measuring something."""
        kept = _kept(outcome)
        self._write({"wanted": {list_of(wanted): document_of(wanted)}, **_outcome_document(kept)})
        self._take(wanted, kept)

    def add_facts(self, facts: Mapping[str, Any]) -> None:
        """Keep something that was found out about the machine."""
        self._write({"facts": dict(facts)})
        self.facts.update(facts)

    def end(self) -> None:
        """Say that this run has come to its end: the next one measures everything once more."""
        self._write({"complete": self.run})

    def known_half_width(self, wanted: Wanted) -> float:
        """Return how well something is known: half its interval over its median, infinite if unknown."""
        known = self.results.get(key_of(wanted))
        return known.outcome.relative_half_width if known and isinstance(known.outcome, Timing) else inf

    def _begin(self, run: str, identity: Mapping[str, Any]) -> None:
        self._write({"run": run, "identity": dict(identity)})
        self.runs.append(run)
        self.done.clear()

    def _take(self, wanted: Wanted, outcome: Outcome) -> None:
        key, newer = key_of(wanted), Result(wanted=wanted, outcome=outcome, run=self.run)
        known = self.results.get(key)
        self.results[key] = newer if known is None else known.refined(newer)
        if not (isinstance(outcome, Failure) and outcome.reason == TIME_IS_UP):
            self.done.add(key)

    def _write(self, record: Mapping[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def open_journal(path: Path, *, run: str, identity: Mapping[str, Any]) -> Journal:
    """Return the journal of a profile, with what earlier runs found.

    A run that was killed goes on: what it has done is in ``done``. After one that came to its end a new
    one begins. Raises `OtherMachine` where ``identity`` is another than the one kept.
    """
    journal = Journal(path=path)
    is_open = False
    for record in _records(path):
        if "identity" in record:
            _require_same(record["identity"], identity, path)
            journal.runs.append(record["run"])
            journal.done.clear()
            is_open = True
        elif "complete" in record:
            is_open = False
        elif "facts" in record:
            journal.facts.update(record["facts"])
        else:
            journal._take(*_result(record))  # noqa: SLF001 - made here
    if not is_open:
        journal._begin(run, identity)  # noqa: SLF001 - made here
    return journal


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of the file; one that a kill cut short is taken away, so that the next starts anew."""
    if not path.exists():
        return
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    for line in whole.splitlines():
        yield json.loads(line)


def _require_same(kept: Mapping[str, Any], here: Mapping[str, Any], path: Path) -> None:
    differing = sorted(key for key in {*kept, *here} if kept.get(key) != here.get(key))
    if differing:
        key = differing[0]
        raise OtherMachine(
            f"{path} was measured with {key} {kept.get(key)!r}, here it is {here.get(key)!r}: "
            "write to another file, or start afresh"
        )


def _kept(outcome: Outcome) -> Outcome:
    """Return the outcome with as many samples as are kept: a run that goes on finds the same."""
    match outcome:
        case Failure():
            return outcome
        case Timing():
            return thinned(outcome)
        case Overlapped():
            return Overlapped(
                kernels=outcome.kernels,
                **{name: thinned(getattr(outcome, name)) for name in OVERLAPPED_TIMINGS},
            )


def _outcome_document(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Failure():
            return {"failure": {"reason": outcome.reason, "detail": outcome.detail}}
        case Timing():
            return {"samples": outcome.by_rank}
        case Overlapped():
            timings = {name: getattr(outcome, name).by_rank for name in OVERLAPPED_TIMINGS}
            return {"overlapped": {"kernels": outcome.kernels, **timings}}


def _result(record: Mapping[str, Any]) -> tuple[Wanted, Outcome]:
    lists = {name: [item] for name, item in record["wanted"].items()}
    (wanted,) = shapes_from_document({"format": SHAPES_FORMAT, **lists}).interleaved()
    return wanted, _outcome(record)


def _outcome(record: Mapping[str, Any]) -> Outcome:
    if "failure" in record:
        return Failure(**record["failure"])
    if "samples" in record:
        return Timing.of(record["samples"])
    given = dict(record["overlapped"])
    kernels = given.pop("kernels")
    return Overlapped(kernels=kernels, **{name: Timing.of(samples) for name, samples in given.items()})
