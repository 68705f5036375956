"""A request by options: the short form, alone or laid over a request document."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from api.cli.documents import bad_option, read_json, value_from

Function = TypeVar("Function", bound=Callable[..., Any])

JSON_SUFFIX: Final = ".json"
RANGE_SIGN: Final = ".."

SHARED_OPTIONS: Final = (
    click.option(
        "--model",
        metavar="NAME|CONFIG.json",
        help="A preset, a Hugging Face config.json, or a chain of layers (meshplan trace).",
    ),
    click.option("--num-layers", type=int, metavar="N", help="Another depth of the same model."),
    click.option(
        "--cluster",
        metavar="NAME:DEVICES|CLUSTER.json",
        help="A system with so many devices (h100-sxm:64, local:2), or a cluster document.",
    ),
    click.option("--global-batch", type=int, metavar="N", help="Samples per step, over all devices."),
    click.option("--sequence", type=int, metavar="N", help="Tokens of one sample."),
    click.option(
        "--decoder-sequence",
        type=int,
        metavar="N",
        help="Tokens of the decoder's side of an encoder-decoder.",
    ),
    click.option("--images", type=int, metavar="N", help="Images of one sample."),
    click.option("--framework", metavar="NAME", help="Training framework, or any. [default: megatron-core]"),
    click.option("--precision", metavar="NAME", help="bf16, fp16, fp32, … [default: bf16]"),
    click.option(
        "--optimizer", metavar="NAME", help="adamw, adamw_8bit, lion, muon, adafactor, … [default: adamw]"
    ),
    click.option("--attention", metavar="NAME", help="flash or unfused. [default: as the framework does]"),
    click.option(
        "--job",
        multiple=True,
        metavar="WORD=VALUE",
        help='Any other field of the job: optimizer_state_dtype=bf16, trainable=\'{"kind": "lora"}\'.',
    ),
    click.option(
        "--memory-fraction", type=float, metavar="X", help="Safe share of the memory. [default: 0.94]"
    ),
    click.option(
        "--profile", "profiles", multiple=True, metavar="NAME", help="Use these measurements alone."
    ),
)

PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "num_layers": ("model", "num_layers"),
    "global_batch": ("job", "global_batch_size"),
    "sequence": ("job", "sequence_length"),
    "decoder_sequence": ("job", "decoder_sequence_length"),
    "images": ("job", "images_per_sample"),
    "framework": ("job", "framework"),
    "precision": ("job", "precision"),
    "optimizer": ("job", "optimizer"),
    "attention": ("job", "attention"),
    "memory_fraction": ("constraints", "memory_fraction"),
    "time_limit": ("solver", "time_limit_seconds"),
    "relative_gap": ("solver", "relative_gap"),
    "explain": ("solver", "explain"),
    "sensitivity": ("solver", "sensitivity"),
}
"""The field of the request that an option fills."""


OPTIONS: Final[Mapping[str, str]] = {
    "/model": "--model NAME|CONFIG.json",
    "/model/preset": "--model NAME|CONFIG.json",
    "/cluster": "--cluster NAME:DEVICES|CLUSTER.json",
    "/cluster/preset": "--cluster NAME:DEVICES|CLUSTER.json",
    "/cluster/num_devices": "--cluster NAME:DEVICES",
    "/job": "--global-batch N, --sequence N",
    **{f"/{'/'.join(place)}": f"--{option.replace('_', '-')}" for option, place in PLACES.items()},
}
"""The option that fills a field, by the field's JSON pointer."""


def shared_options(function: Function) -> Function:
    """Give a command the options that both verbs have."""
    for option in reversed(SHARED_OPTIONS):
        function = option(function)
    return function


def request_document(path: str | None, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - checked later
    """Return the request of a file, if there is one, with what the options say laid over it."""
    document = {} if path is None else read_json(path)
    if not isinstance(document, dict):
        return document
    if options.get("model") is not None:
        document["model"] = _model(options["model"])
    if options.get("cluster") is not None:
        document["cluster"] = _cluster(options["cluster"])
    for option, place in PLACES.items():
        if options.get(option) is not None:
            _put(document, place, options[option])
    for word, value in pairs("--job", options.get("job") or ()).items():
        _put(document, ("job", word), value)
    if options.get("profiles"):
        document["profiles"] = list(options["profiles"])
    return document


def add_constraints(
    document: Any,  # noqa: ANN401 - checked later
    *,
    fix: Sequence[str],
    bound: Sequence[str],
    offload: Sequence[str],
    forbid: Sequence[str],
    allow: Sequence[str],
) -> None:
    """Lay constraints over a request document."""
    if not isinstance(document, dict):
        return
    for word, value in pairs("--fix", fix).items():
        _put(document, ("constraints", "fixed", word), value)
    if offload:
        _put(document, ("constraints", "fixed", "offload"), pairs("--offload", offload))
    for text in bound:
        word, _, limits = text.partition("=")
        _put(document, ("constraints", "bounds", word), _range(text, limits))
    for name, words in (("forbid", forbid), ("allow", allow)):
        if words:
            _put(document, ("constraints", name), list(words))


def pairs(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return KEY=VALUE texts as a mapping, values read as JSON where they are."""
    found = {}
    for text in texts:
        word, sign, value = text.partition("=")
        if not sign or not word:
            raise bad_option(option, f"{text!r} is not of the form WORD=VALUE")
        found[word.strip().replace("-", "_")] = value_from(value.strip())
    return found


def _model(text: str) -> dict[str, Any]:
    if text.endswith(JSON_SUFFIX) or Path(text).is_file():
        document = read_json(text)
        is_chain = isinstance(document, dict) and isinstance(document.get("layers"), list)
        return document if is_chain else {"huggingface": document}
    return {"preset": text}


def _cluster(text: str) -> Any:  # noqa: ANN401 - checked later
    if text.endswith(JSON_SUFFIX):
        return read_json(text)
    name, sign, number = text.rpartition(":")
    if not sign:
        return {"preset": text}
    return {"preset": name, "num_devices": value_from(number)}


def _range(text: str, limits: str) -> list[Any]:
    smallest, sign, largest = limits.partition(RANGE_SIGN)
    if not sign:
        raise bad_option("--bound", f"{text!r} is not of the form WORD=SMALLEST..LARGEST")
    return [value_from(smallest), value_from(largest)]


def _put(document: dict[str, Any], place: Sequence[str], value: object) -> None:
    """Set a field, with the objects around it where they are missing; what is no object stays."""
    here = document
    for step in place[:-1]:
        inner = here.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        here = inner
    here[place[-1]] = value
