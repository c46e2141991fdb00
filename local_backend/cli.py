"""The engine's command line: ``roundhouse engine …`` and ``python -m local_backend …``.

Knows subcommands by name and turns errors into one line and an exit code; each subcommand's work is in
:mod:`local_backend.commands`, imported when it is asked for: reading a header needs no server.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from local_backend import __version__
from local_backend.errors import EngineError

__all__ = ["build_parser", "main"]

_COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "inspect": "local_backend.commands.inspect_model",
        "plan": "local_backend.commands.plan_model",
        "generate": "local_backend.commands.generate",
        "serve": "local_backend.commands.serve",
        "bench": "local_backend.commands.bench",
    }
)
_FAILED = 1
_INTERRUPTED = 130

_EXAMPLES = """\
examples:
  roundhouse engine generate builtin:smollm2 --chat "What is the capital of France?"
  roundhouse engine inspect model.gguf
  roundhouse engine serve model.gguf --port 8081

Every subcommand has its own --help.
"""


def build_parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Build the parser: with the subcommand that the arguments name, or with all where they name none."""
    parser = argparse.ArgumentParser(
        prog="roundhouse engine",
        description="Read, plan, run and serve GGUF language models on this machine.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"roundhouse engine {__version__}")
    parser.add_argument("--verbose", "-v", action="store_true", help="log more, on standard error")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    # No option before the subcommand takes a value, so the first word is its name.
    word = next((word for word in argv if not word.startswith("-")), "")
    for name in [word] if word in _COMMANDS else _COMMANDS:
        importlib.import_module(_COMMANDS[name]).add_arguments(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it worked, 1 with one line on standard error when it did not."""
    words = sys.argv[1:] if argv is None else argv
    arguments = build_parser(words).parse_args(words)
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
