"""The HTTP server: uvicorn, told to say when it listens and to leave without a signal's noise.

Knows sockets and signals; not what is served.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import uvicorn
from starlette.types import ASGIApp

__all__ = ["AnnouncingServer", "server_config", "settle_memory"]

_CUT_AFTER_S = 2
_YOUNG_OBJECTS = 20_000


def server_config(app: ASGIApp, *, grace_s: float) -> uvicorn.Config:
    """Return how the server runs: one process, no access log of its own, streams get ``grace_s`` to end."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        # Nothing here reads the client's address, and every request would pay for the rewriting.
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=75,
        # Streams are ended in words after grace_s; what is still open after that is cut.
        timeout_graceful_shutdown=round(grace_s) + _CUT_AFTER_S,
    )


def settle_memory() -> None:
    """Tell the garbage collector that what is there at the start stays.

    Requests make thousands of short-lived objects and hardly a cycle: with the defaults a tenth of all time
    goes into looking through the modules and the catalog again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)


class AnnouncingServer(uvicorn.Server):
    """Calls ``announce`` once it listens, and ``interrupt`` when streams had ``grace_s`` to end on their own.

    The first signal stops it in order, the second at once.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        announce: Callable[[], None],
        interrupt: Callable[[], None],
        grace_s: float,
    ) -> None:
        super().__init__(config)
        self._announce = announce
        self._interrupt = interrupt
        self._grace_s = grace_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets=sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests, let the open ones end, then stop what runs beside them."""
        log = structlog.get_logger("server")
        log.info("stopping; what is still answered may end", connections=len(self.server_state.connections))
        async with asyncio.TaskGroup() as tasks:
            hurrying = tasks.create_task(self._hurry())
            await super().shutdown(sockets=sockets)
            hurrying.cancel()
        log.info("stopped")

    async def _hurry(self) -> None:
        await asyncio.sleep(self._grace_s)
        self._interrupt()

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
