"""The engine's command line: ``roundhouse engine …`` and ``python -m local_backend …``.

Knows subcommands by name and turns errors into one line and an exit code; each subcommand's work is in
:mod:`local_backend.commands`.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from local_backend import __version__
from local_backend.commands import bench, generate, inspect_model, plan_model, serve
from local_backend.errors import EngineError

__all__ = ["build_parser", "main"]

_FAILED = 1
_INTERRUPTED = 130

_EXAMPLES = """\
examples:
  roundhouse engine generate builtin:smollm2 --chat "What is the capital of France?"
  roundhouse engine inspect model.gguf
  roundhouse engine serve model.gguf --port 8081

Every subcommand has its own --help.
"""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser with all subcommands."""
    parser = argparse.ArgumentParser(
        prog="roundhouse engine",
        description="Read, plan, run and serve GGUF language models on this machine.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"roundhouse engine {__version__}")
    parser.add_argument("--verbose", "-v", action="store_true", help="log more, on standard error")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (inspect_model, plan_model, generate, serve, bench):
        command.add_arguments(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it worked, 1 with one line on standard error when it did not."""
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if arguments.verbose else arguments.log_level,
        format="%(levelname)s %(name)s: %(message)s",
    )
    try:
        code: int = arguments.run(arguments)
    except EngineError as error:
        print(f"roundhouse engine: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left; Python would complain again while it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    return code
