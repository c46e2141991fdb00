"""``plan``: every byte a model will use here, before it is loaded. Knows arguments and printing only."""

from __future__ import annotations

import argparse
import logging
import sys

from local_backend.commands.options import add_model, positive
from local_backend.engine.loading import context_within
from local_backend.model.default_model import resolve_model
from local_backend.model.loader import open_model
from local_backend.plan.hardware import probe
from local_backend.plan.placement import PlacementPlan
from local_backend.plan.planner import plan

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
examples:
  roundhouse engine plan builtin:smollm2
  roundhouse engine plan model.gguf --context 16384 --json

Exits with 1 where the model does not fit, and says what would.
"""


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "plan",
        help="show the memory a model will use here",
        description="Account for every byte of a model on this machine; nothing is loaded.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    parser.add_argument(
        "--context",
        type=positive,
        metavar="N",
        help="tokens of prompt and answer together (default: the model's own, at most 32768)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run, log_level=logging.WARNING)


def run(arguments: argparse.Namespace) -> int:
    """Plan and print; 1 where it does not fit."""
    with open_model(resolve_model(arguments.model)) as file:
        context_tokens = context_within(file.specification, arguments.context)
        result = plan(file.specification, file.weights, probe(), context_tokens)
    sys.stdout.write((result.to_json() if arguments.json else result.to_text()) + "\n")
    return 0 if isinstance(result, PlacementPlan) else 1
