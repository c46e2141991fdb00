"""``roundhouse serve``: read everything, take the port, start, say where.

Whatever stops the start is one clear sentence and exit code 1. Knows no routes.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import socket
import sys

from router.catalog.catalog import Catalog
from router.catalog.load import load_catalog
from router.errors import ConfigurationError, ConfigurationProblem, SourcePosition
from router.settings import (
    LogFormat,
    Settings,
    is_loopback,
    read_child_environment,
    read_provider_keys,
    read_settings,
    set_library_environment,
)

__all__ = ["run", "take_port"]

_BACKLOG = 2048


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    settings = read_settings(
        {
            "host": options.host,
            "port": options.port,
            "config": options.config,
            "data_dir": options.data_dir,
            "database_url": options.database_url,
            "log_format": options.log_format,
            "log_level": options.log_level,
            "no_engine": options.no_engine or None,
            "allow_open": options.allow_open or None,
        }
    )
    _refuse_open_port(settings)
    catalog = load_catalog(settings.config_path)
    with take_port(settings.host, settings.port) as listener:
        return _serve(settings, catalog, listener)


def take_port(host: str, port: int) -> socket.socket:
    """Bind and return a listening socket; ``port`` 0 takes any free one.

    Raises
    ------
    ConfigurationError
        The port is in use or not ours to take, or there is no such address on this machine.

    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        where = SourcePosition(f"{host}:{port}")
        if error.errno == errno.EADDRINUSE:
            problem = ConfigurationProblem(
                "the port is in use by another program", where, "stop that one, or pass --port N"
            )
        elif error.errno in {errno.EACCES, errno.EPERM}:
            problem = ConfigurationProblem(
                "this port needs more rights than you have", where, "pass --port N above 1023"
            )
        else:
            problem = ConfigurationProblem(
                f"this address cannot be used: {error.strerror or error}", where, "pass another --host"
            )
        raise ConfigurationError((problem,)) from error
    return listener


def _refuse_open_port(settings: Settings) -> None:
    if is_loopback(settings.host) or settings.api_key is not None or settings.allow_open:
        return
    problem = ConfigurationProblem(
        "other machines could use this port, and spend your money, without any key",
        SourcePosition(f"--host {settings.host}"),
        "set ROUNDHOUSE_API_KEY, or say --allow-open if that is meant",
    )
    raise ConfigurationError((problem,))


def _serve(settings: Settings, catalog: Catalog, listener: socket.socket) -> int:
    # Imported late, so that a wrong flag or a taken port is said at once.
    from router.app import build_roundhouse
    from router.commands.banner import banner
    from router.commands.server import AnnouncingServer, server_config, settle_memory
    from router.providers.litellm_library import REQUIRED_ENVIRONMENT
    from router.recording.log_setup import configure_logging

    keys = read_provider_keys(name for one in catalog.providers.values() for name in one.key_env)
    known = [*keys.values(), *([settings.api_key] if settings.api_key else [])]
    configure_logging(
        as_json=settings.log_format is LogFormat.JSON,
        level=settings.log_level.value,
        secrets=[secret.reveal() for secret in known],
    )
    environment = read_child_environment(keys)
    set_library_environment(REQUIRED_ENVIRONMENT)
    roundhouse = build_roundhouse(settings, catalog, keys=keys, child_environment=environment)
    port = listener.getsockname()[1]

    def announce() -> None:
        settle_memory()
        sys.stdout.write(banner(settings, catalog, roundhouse.gateway.snapshot(), port))
        sys.stdout.flush()

    grace_s = settings.shutdown_grace_s
    server = AnnouncingServer(
        server_config(roundhouse.asgi, grace_s=grace_s),
        announce=announce,
        interrupt=roundhouse.open_requests.interrupt,
        grace_s=grace_s,
    )
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))
    return 0 if server.started else 1
