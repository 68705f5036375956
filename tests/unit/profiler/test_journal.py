from dataclasses import replace
from pathlib import Path

import pytest

from planner.workload.operators import Collective, Phase
from profiler.journal import Journal, OtherMachine, open_journal
from profiler.outcomes import KEPT_SAMPLES, Outcome, Overlapped
from profiler.processes import Failure
from profiler.shapes import CollectiveShape, KernelShape, OverlapShape, TransferShape, Wanted, key_of
from profiler.timing import Timing

ADD = KernelShape(operator="add", dtype="fp32", phase=Phase.FORWARD, shape={"elems": 8})
GATHER = CollectiveShape(
    operation=Collective.ALL_GATHER, world_size=4, payload_bytes=64, ranks_per_node=2, groups=2
)
OVERLAP = OverlapShape(collective=replace(GATHER, groups=1), kernel=ADD)
COPY = TransferShape(operation="h2d", payload_bytes=64)
TIMES = Timing.of([[1.0, 2.0], [3.0, 4.0]])
OUT_OF_MEMORY = Failure(reason="out_of_memory", detail="too large")
TIME_LIMIT = Failure(reason="time_limit", detail="the time was up")


def journal_at(folder: Path, *, run: str = "first", torch: str = "2.9") -> Journal:
    return open_journal(folder / "journal", run=run, identity={"torch": torch})


@pytest.mark.parametrize(
    ("wanted", "outcome"),
    [
        (ADD, TIMES),
        (GATHER, TIMES),
        (COPY, TIMES),
        (ADD, OUT_OF_MEMORY),
        (
            OVERLAP,
            Overlapped(
                kernels=3,
                collective_alone=TIMES,
                kernels_alone=TIMES,
                collective_together=TIMES,
                kernels_together=TIMES,
            ),
        ),
    ],
)
def test_what_was_kept_is_read_again(tmp_path: Path, wanted: Wanted, outcome: Outcome) -> None:
    journal_at(tmp_path).add(wanted, outcome)
    read = journal_at(tmp_path, run="second")

    (result,) = read.results.values()
    assert (result.wanted, result.outcome, result.run) == (wanted, outcome, "first")
    assert read.done == {key_of(wanted)}


def test_run_that_was_killed_goes_on(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    journal.add(ADD, TIMES)
    with journal.path.open("a") as file:
        file.write('{"wanted": {"kernels": {"operat')
    again = journal_at(tmp_path, run="second")
    again.add(COPY, TIMES)

    read = journal_at(tmp_path, run="third")
    assert read.runs == ["first"]
    assert read.done == {key_of(ADD), key_of(COPY)}


def test_run_that_ended_is_followed_by_a_new_one(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    journal.add(ADD, TIMES)
    journal.end()
    again = journal_at(tmp_path, run="second")

    assert again.runs == ["first", "second"]
    assert again.done == set()
    assert key_of(ADD) in again.results


def test_what_there_was_no_time_for_is_not_done(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    journal.add(ADD, TIME_LIMIT)
    journal.add(COPY, OUT_OF_MEMORY)

    assert journal.done == {key_of(COPY)}


@pytest.mark.parametrize("other", [OUT_OF_MEMORY, TIME_LIMIT])
def test_failures_give_way_to_figures(tmp_path: Path, other: Failure) -> None:
    journal = journal_at(tmp_path)
    journal.add(ADD, TIMES)
    journal.add(ADD, other)
    journal.add(COPY, other)
    journal.add(COPY, TIMES)

    assert [result.outcome for result in journal.results.values()] == [TIMES, TIMES]


def test_samples_of_all_runs_count_alike(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    journal.add(ADD, TIMES)
    journal.add(ADD, Timing.of([[5.0], [6.0]]))

    (result,) = journal.results.values()
    assert result.outcome == Timing.of([[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]])
    assert result.runs == 2


def test_many_samples_are_thinned_out_and_keep_their_median(tmp_path: Path) -> None:
    samples = [float(number) for number in range(1, 1002)]
    journal_at(tmp_path).add(ADD, Timing.of([samples]))

    (result,) = journal_at(tmp_path).results.values()
    assert isinstance(result.outcome, Timing)
    assert len(result.outcome.samples) == KEPT_SAMPLES
    assert result.outcome.median_seconds == pytest.approx(501, rel=0.01)
    assert (min(result.outcome.samples), max(result.outcome.samples)) == (1.0, 1001.0)


def test_facts_of_all_runs_are_kept(tmp_path: Path) -> None:
    journal_at(tmp_path).add_facts({"sustained": 1})

    assert journal_at(tmp_path).facts == {"sustained": 1}


def test_other_software_is_not_pooled(tmp_path: Path) -> None:
    journal_at(tmp_path)

    with pytest.raises(OtherMachine, match=r"with torch '2\.9', here it is '2\.10'"):
        journal_at(tmp_path, torch="2.10")
