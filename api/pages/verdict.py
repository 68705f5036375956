"""How a request ended, in a word and a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from api.pages.memory_chart import worst_stage
from api.pages.quantities import bytes_scale, percent


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The word, its sign (so that colour is not all that tells), and the sentence; tone: good, warn, bad."""

    word: str
    sign: str
    tone: str
    sentence: str


GOOD: Final = ("\N{CHECK MARK}", "good")
WARN: Final = ("!", "warn")
BAD: Final = ("\N{MULTIPLICATION SIGN}", "bad")

_ENDINGS: Final[Mapping[str, tuple[str, tuple[str, str], str]]] = {
    "optimal": ("Proven optimal", GOOD, "No plan in the searched space is faster"),
    "feasible": ("Feasible", WARN, "The time limit ended the search before the proof"),
    "infeasible": ("Does not fit", BAD, "No plan in the searched space fits these devices"),
    "unknown": ("No plan found", WARN, "The time limit ended the search before any plan was found"),
    "fits": ("Fits", GOOD, "The plan runs within the memory of every device"),
    "does_not_fit": ("Does not fit", BAD, "A stage needs more memory than its devices have"),
    "illegal": ("Illegal", BAD, "The plan breaks a rule of the model, the cluster or the framework"),
}
_STATES: Final[Mapping[str, tuple[str, tuple[str, str], str]]] = {
    "queued": ("Waiting", WARN, "The request waits for its turn"),
    "running": ("Planning", WARN, "The search is running"),
    "cancelled": ("Cancelled", WARN, "The request was cancelled"),
    "failed": ("Failed", BAD, "The planner could not answer"),
}


def verdict(document: Mapping[str, Any]) -> Verdict:
    """Return how a result document ended, or how far it is."""
    key = document.get("status")
    known = _ENDINGS if key else _STATES
    word, (sign, tone), sentence = known.get(
        key or document["state"], (str(key or document["state"]), WARN, "")
    )
    if key == "does_not_fit" and document.get("prediction"):
        sentence = _excess(document["prediction"]["memory"]) or sentence
    return Verdict(word=word, sign=sign, tone=tone, sentence=_with_gap(sentence, document))


def status_word(status: str | None, state: str) -> Verdict:
    """Return the verdict of a record whose result is not at hand."""
    return verdict({"status": status, "state": state})


def _excess(memory: Sequence[Mapping[str, Any]]) -> str:
    """Say by how much the fullest stage does not fit; nothing where another memory is too small."""
    worst = worst_stage(memory)
    excess = worst["peak_bytes"] - worst["capacity_bytes"]
    if excess <= 0:
        return ""
    return f"Stage {worst['stage']} needs {bytes_scale(excess).quantity(excess)} more than its devices have"


def _with_gap(sentence: str, document: Mapping[str, Any]) -> str:
    certificate = document.get("certificate")
    if not certificate or not certificate.get("relative_gap"):
        return f"{sentence}."
    return f"{sentence}: at most {percent(certificate['relative_gap'])} left to gain."
