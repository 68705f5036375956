"""``python -m profiler.tracing``: trace a module and write the chain of its layers."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from planner.workload.chain import layers_document
from planner.workload.traced import Volume
from profiler.tracing.errors import UntraceableModule
from profiler.tracing.inputs import DTYPES, InputShape, input_shape
from profiler.tracing.modules import factory_named
from profiler.tracing.trace import trace

TRACED, BAD_INPUT = 0, 2

SIZES: Final = frozenset(field.name for field in fields(Volume))
"""The sizes of a volume: zero where they are left out."""

EXAMPLES = """\
examples:
  python -m profiler.tracing my_package.models:resnet --input 3x224x224 --output chain.json
  python -m profiler.tracing model.py:Tagger --input 128:int64 --output chain.json
      token numbers; the dtype of other inputs is that of the module
  python -m profiler.tracing model.py:make --input 80xBx64 --input Bx64:bool --output chain.json
      two inputs, in order; B stands where the batch does, first where it is left out
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Trace as the arguments say and return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        workload = trace(factory_named(arguments.factory), _inputs(arguments), dtype=DTYPES[arguments.dtype])
    except UntraceableModule as error:
        sys.stderr.write(f"tracing: {' '.join(str(error).split())}\n")
        return BAD_INPUT
    text = json.dumps(_without_nothing(layers_document(workload)), indent=1) + "\n"
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        arguments.output.write_text(text)
    return TRACED


def _without_nothing(document: Any) -> Any:  # noqa: ANN401 - whatever JSON says
    """Return a document without what has no value and without volumes of nothing: defaults, all of them."""
    if isinstance(document, list):
        return [_without_nothing(entry) for entry in document]
    if not isinstance(document, dict):
        return document
    kept = {key: value for key, value in document.items() if value is not None}
    return {key: _without_nothing(value) for key, value in kept.items() if value or key not in SIZES}


def _inputs(arguments: argparse.Namespace) -> list[InputShape]:
    shapes = [input_shape(text) for text in arguments.input]
    shapes += [input_shape(f"{tokens}:int64") for tokens in arguments.input_tokens]
    if not shapes:
        raise UntraceableModule("no --input says what a sample of the module is")
    return shapes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m profiler.tracing",
        description="Trace a torch module, without running it, into a chain of layers to plan for.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "factory", metavar="MODULE:FACTORY", help="what makes the module, in a package or file"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="SHAPE",
        help="an input of one sample; repeat for more",
    )
    parser.add_argument(
        "--input-tokens",
        action="append",
        default=[],
        type=int,
        metavar="N",
        help="an input of N token numbers",
    )
    parser.add_argument(
        "--dtype",
        choices=("fp32", "bf16", "fp16"),
        default="fp32",
        help="of weights and inputs (default: fp32)",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="the chain (default: standard output)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
