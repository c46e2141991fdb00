"""Keeps a stream's connection alive until its first event: proxies cut what stays silent for long.

For a few seconds nothing is sent, so that an early failure keeps its HTTP status. Then the answer's head goes
out and comments follow, which every reader of event streams skips (WHATWG HTML, 9.2.6). Knows no chat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from starlette.types import Message, Send

__all__ = ["KeepAlive", "comment"]

_KEEP_ALIVE: Final = b": keep-alive\n\n"


def comment(text: str) -> bytes:
    """Frame a comment; line breaks would end it."""
    return b": " + " ".join(text.split()).encode() + b"\n\n"


class KeepAlive:
    """Of one answer. ``head`` begins it, and ``begins`` is told of that.

    ``group`` gets a task only where one becomes necessary. Whoever sends the answer awaits :meth:`end` first:
    from then on nothing else is sent from here.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        send: Send,
        head: Message,
        *,
        after_s: float,
        every_s: float,
        begins: Callable[[], None] = lambda: None,
    ) -> None:
        self._group = group
        self._send = send
        self._head = head
        self._every_s = every_s
        self._begins = begins
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(after_s, self._begin)

    @property
    def began(self) -> bool:
        """Whether the client has got the answer's head from here."""
        return self._task is not None

    async def end(self) -> None:
        """Stop; returns once what was being sent is sent."""
        self.stop()
        if self._task is not None:
            await self._task

    def stop(self) -> None:
        """Stop without waiting."""
        self._timer.cancel()
        self._over.set()

    def _begin(self) -> None:
        self._begins()
        self._task = self._group.create_task(self._run())

    async def _run(self) -> None:
        await self._send(self._head)
        while not self._over.is_set():
            await self._send({"type": "http.response.body", "body": _KEEP_ALIVE, "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._over.wait()
