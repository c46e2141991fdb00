"""``serve``: the model over HTTP in the OpenAI wire. Knows arguments; not sockets or routes."""

from __future__ import annotations

import argparse
import logging

from local_backend.commands.options import add_engine_options, add_model, engine_config
from local_backend.config import ServerConfig, token_from_environment
from local_backend.engine.loading import load_model, public_name
from local_backend.server.parent_watch import end_with_stdin
from local_backend.server.service import Service
from local_backend.server.serving import serve
from local_backend.server.worker import EngineWorker

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
examples:
  roundhouse engine serve builtin:smollm2
  roundhouse engine serve Qwen3-30B-A3B-Q4_K_M.gguf --context 16384 --port 8081

The server listens at once; /health answers 503 with the progress until the model is loaded.
With ROUNDHOUSE_ENGINE_TOKEN set, every route but /health wants it as a bearer token.
"""


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "serve",
        help="serve a model over HTTP, OpenAI-compatible",
        description="Serve one model over HTTP in the OpenAI wire: chat, completions, health, metrics.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8081, help="port, 0 for any (default: %(default)s)")
    parser.add_argument("--name", help="the model's name on the wire (default: from its file)")
    parser.add_argument(
        "--queue",
        type=int,
        default=16,
        metavar="N",
        help="requests that may wait behind the running one (default: %(default)s)",
    )
    add_engine_options(parser)
    parser.add_argument(
        "--exit-with-stdin",
        action="store_true",
        help="stop when standard input ends, so that no server survives its parent",
    )
    parser.add_argument(
        "--announce",
        action="store_true",
        help="print JSON lines on standard output: listening (with host and port), then ready or failed",
    )
    parser.set_defaults(run=run, log_level=logging.INFO)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    config = ServerConfig(
        host=arguments.host,
        port=arguments.port,
        token=token_from_environment(),
        queue_limit=arguments.queue,
    )
    if arguments.exit_with_stdin:
        end_with_stdin(config.grace_s + 1.0)
    engine = engine_config(arguments)
    worker = EngineWorker(
        lambda progress: load_model(arguments.model, engine, progress), queue_limit=config.queue_limit
    )
    name = arguments.name or public_name(arguments.model)
    serve(Service(worker, config, name), announcing=arguments.announce)
    return 0
