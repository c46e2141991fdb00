"""The HTTP server: uvicorn, told to say when it listens and to leave without a signal's noise.

Knows sockets and signals; not what is served.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

__all__ = ["AnnouncingServer", "server_config"]


def server_config(app: ASGIApp, *, grace_s: float) -> uvicorn.Config:
    """Return how the server runs: one process, no access log of its own, streams get ``grace_s`` to end."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )


class AnnouncingServer(uvicorn.Server):
    """Calls ``announce`` once it listens. The first signal stops it in order, the second at once."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets=sockets)
        if self.started:
            self._announce()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop in order on SIGINT and SIGTERM, and do not raise them again: having stopped is success."""
        wanted = (signal.SIGINT, signal.SIGTERM)
        before = {one: signal.signal(one, self.handle_exit) for one in wanted}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
