"""``inspect``: what a model file holds. Knows arguments and printing; reads nothing itself."""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import replace

from local_backend.commands.options import add_model
from local_backend.gguf.format import GGMLType
from local_backend.kernels.native import computes
from local_backend.model.default_model import resolve_model
from local_backend.model.inspection import inspect_model

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
examples:
  roundhouse engine inspect builtin:smollm2
  roundhouse engine inspect model-00001-of-00003.gguf --json

A sound file that this engine cannot run is shown too, with what is missing.
"""


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "inspect",
        help="show what a model file holds",
        description="Read and check a model's headers; nothing is loaded.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run, log_level=logging.WARNING)


def run(arguments: argparse.Namespace) -> int:
    """Read and print."""
    inspection = inspect_model(resolve_model(arguments.model))
    types = (use.type for use in inspection.tensor_types)
    slow = tuple(name for name in types if not computes(GGMLType[name]))
    inspection = replace(inspection, slow_types=slow)
    sys.stdout.write((inspection.to_json() if arguments.json else inspection.to_text()) + "\n")
    return 0
