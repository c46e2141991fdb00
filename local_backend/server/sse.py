"""Server-sent events (WHATWG HTML, 9.2) and the watch for clients that leave. Knows no chat format."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import anyio
import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from local_backend.errors import Cancelled, EngineError

__all__ = ["DONE", "KEEP_ALIVE", "SSEResponse", "frame", "until_disconnect"]

_Answer = TypeVar("_Answer")

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


def frame(payload: Any) -> bytes:  # noqa: ANN401 - anything that JSON can say
    """One event that carries JSON."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


async def until_disconnect(receive: Receive, work: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """Run ``work`` unless the client leaves first; then it is cancelled and ``Cancelled`` is raised.

    The request's body must have been read already.
    """
    answers: list[_Answer] = []
    failures: list[EngineError] = []
    async with anyio.create_task_group() as group:
        group.start_soon(_cancel_on_disconnect, receive, group.cancel_scope)
        try:
            answers.append(await work())
        except EngineError as error:
            failures.append(error)  # raised outside, where the group does not wrap it
        group.cancel_scope.cancel()
    if failures:
        raise failures[0]
    if not answers:
        raise Cancelled("the client left")
    return answers[0]


class SSEResponse(Response):
    """Sends frames as they come and closes their source when they end, fail, or the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[bytes, None], *, release: Callable[[], None]) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        # The length of a stream is not known; the empty body's would end it at once.
        del self.headers["content-length"]
        self._frames = frames
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Answer one request."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_on_disconnect, receive, group.cancel_scope)
                await self._send_all(send)
                group.cancel_scope.cancel()
        finally:
            self._release()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._frames) as frames:
            async for data in frames:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
