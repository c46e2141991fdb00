"""The command ``roundhouse``: what it can be told, and which command does it.

Knows names and help texts; each command is a file of ``router/commands`` and is imported when it is run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from router import __version__
from router.errors import GatewayError

__all__ = ["build_parser", "main"]

_DESCRIPTION = """\
One OpenAI-compatible port in front of many models, with an engine of its own behind it.

Start it, point a client at http://127.0.0.1:8080/v1, and ask for the model "auto":

  roundhouse serve
  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
       -d '{"model": "auto", "messages": [{"role": "user", "content": "hello"}]}'
"""

_SERVE_EXAMPLES = """\
examples:
  roundhouse serve
  roundhouse serve --port 9000 --config ~/providers.yaml
  ROUNDHOUSE_API_KEY=choose-one roundhouse serve --host 0.0.0.0
  roundhouse serve --database-url postgresql://me@db/roundhouse

environment (a flag wins over its variable):
  ROUNDHOUSE_HOST  ROUNDHOUSE_PORT  ROUNDHOUSE_CONFIG  ROUNDHOUSE_DATA_DIR  ROUNDHOUSE_DATABASE_URL
  ROUNDHOUSE_LOG_FORMAT  ROUNDHOUSE_LOG_LEVEL  ROUNDHOUSE_NO_ENGINE  ROUNDHOUSE_ALLOW_OPEN
  ROUNDHOUSE_API_KEY       clients must send it as a bearer token
  ROUNDHOUSE_CORS_ORIGINS  web pages that may call the port, separated by commas; default: none
  and the providers' keys, under the names that providers.yaml gives (OPENAI_API_KEY and so on)
"""

_CHECK_EXAMPLES = """\
examples:
  roundhouse check                     the file that serve would use
  roundhouse check my-providers.yaml
  roundhouse check --schema > providers.schema.json      for completion in an editor
"""

_EXPLAIN_EXAMPLES = """\
examples:
  roundhouse explain "write a haiku"
  roundhouse explain --model code --file body.json
  roundhouse explain --url http://127.0.0.1:8080 "hello"      with the running gateway's health
"""

_ENGINE_EXAMPLES = """\
examples:
  roundhouse engine inspect MODEL.gguf
  roundhouse engine generate MODEL.gguf --prompt "hello"
  roundhouse engine --help             everything that the engine can do
"""

_MIGRATE_EXAMPLES = """\
examples:
  roundhouse migrate --database-url postgresql://me@db/roundhouse
  roundhouse migrate --to 0001         back to an earlier revision, before starting an earlier version
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of every command but ``engine``, whose words belong to the engine."""
    parser = argparse.ArgumentParser(
        prog="roundhouse", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_serve(_command(commands, "serve", "start the gateway", _SERVE_EXAMPLES))
    check = _command(commands, "check", "check providers.yaml, with line and column", _CHECK_EXAMPLES)
    check.add_argument(
        "file", nargs="?", metavar="FILE", help="the file; default: the one that serve would use"
    )
    check.add_argument("--schema", action="store_true", help="print the JSON Schema of the file instead")
    _add_explain(_command(commands, "explain", "say where a request would go, and why", _EXPLAIN_EXAMPLES))
    migrate = _command(commands, "migrate", "bring the database to this version", _MIGRATE_EXAMPLES)
    _add_data_options(migrate)
    migrate.add_argument(
        "--to", default="head", metavar="REVISION", help="head, base or a revision; default: head"
    )
    _command(commands, "version", "print the version", "")
    _command(commands, "engine", "the local engine: inspect, plan, generate, serve, bench", _ENGINE_EXAMPLES)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 done, 1 refused or failed, 2 misused, 130 interrupted)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["engine"]:
        # The engine has its own parser and help; ours must not eat its flags.
        return int(import_module("router.commands.engine").run(words[1:]))
    options = build_parser().parse_args(words)
    if options.command == "version":
        print(f"roundhouse {__version__}")
        return 0
    try:
        return int(import_module(f"router.commands.{options.command}").run(options))
    except GatewayError as error:
        print(f"roundhouse {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, examples: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=summary[:1].upper() + summary[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="ADDRESS", help="default: 127.0.0.1, this machine only")
    parser.add_argument("--port", metavar="N", help="default: 8080; 0 takes any free one")
    _add_config_option(parser)
    _add_data_options(parser)
    parser.add_argument("--log-format", metavar="FORMAT", help="console (default) or json")
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info (default), warning or error")
    parser.add_argument("--no-engine", action="store_true", help="do not start the local engine")
    parser.add_argument(
        "--allow-open",
        action="store_true",
        help="serve other machines without any key: everybody who reaches the port spends your money",
    )


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the user's message")
    parser.add_argument("--model", help="an entrypoint or a candidate; default: the body's own, else auto")
    parser.add_argument("--file", metavar="BODY.json", help="a whole request body; - reads standard input")
    parser.add_argument(
        "--url", metavar="URL", help="ask this running gateway, which knows everybody's health"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_config_option(parser)


def _add_config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="default: $ROUNDHOUSE_CONFIG, then ./providers.yaml, then the one that came with roundhouse",
    )


def _add_data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", metavar="DIR", help="default: where this system keeps a user's data")
    parser.add_argument("--database-url", metavar="URL", help="default: a SQLite file in the data directory")
