"""The process around the application: socket, signals, announcements. Knows no routes and no models.

On SIGTERM or SIGINT no new connection is accepted, running requests may end by themselves within the
grace, those left get an error frame, and the process exits with 0.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI

from local_backend.errors import EngineError
from local_backend.server.app import create_app
from local_backend.server.service import Service
from local_backend.server.worker import Phase, WorkerStatus

__all__ = ["announce", "serve"]

_log = logging.getLogger(__name__)


def announce(event: str, **fields: Any) -> None:  # noqa: ANN401 - anything that JSON can say
    """Write one JSON line for the process that started this one."""
    sys.stdout.write(orjson.dumps({"event": event, **fields}).decode() + "\n")
    sys.stdout.flush()


def serve(service: Service, *, announcing: bool) -> None:
    """Listen at once, load in the background, return when told to stop.

    Raises :class:`~local_backend.errors.EngineError` when the address cannot be had.
    """
    config = service.config
    listener = _listen(config.host, config.port)
    host, port = listener.getsockname()[:2]

    early: list[WorkerStatus] = []

    def on_loaded(status: WorkerStatus) -> None:
        if not server.started:
            # A file can be refused at once; whoever started us waits for the port first.
            early.append(status)
            return
        if status.phase is Phase.READY:
            _log.info("ready")
        if announcing:
            failed = status.phase is Phase.FAILED
            announce("failed", error=status.error) if failed else announce("ready")

    def on_listening() -> None:
        _log.info("listening on http://%s:%d (model %s)", host, port, service.model_name)
        if announcing:
            announce("listening", host=host, port=port)
        for status in early:
            on_loaded(status)

    app = create_app(service, on_loaded)
    server = _Server(
        _settings(app), on_listening, lambda: service.worker.cancel_all("the engine is stopping")
    )
    server.grace_s = config.grace_s

    # Heard before the server listens for signals itself, and once more after it obeyed one.
    def stop(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        asyncio.run(server.serve(sockets=[listener]))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    """A server that tells when it listens, and ends running requests after a grace."""

    grace_s = 1.0

    def __init__(
        self, config: uvicorn.Config, on_listening: Callable[[], None], cancel_all: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_listening = on_listening
        self._cancel_all = cancel_all

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(self.grace_s, self._cancel_all)
        await super().shutdown(sockets)


def _settings(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        # A backstop behind the grace: whole seconds is all it takes.
        timeout_graceful_shutdown=2,
        server_header=False,
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise EngineError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
