"""The requests that are being served: each ends when its client leaves, and all of them when we stop.

Owns the tasks. Knows neither wires nor answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from starlette.types import Receive

from router.errors import ClientDisconnected, ShuttingDown
from router.story import Story

__all__ = ["OpenRequests"]


class OpenRequests:
    """Runs the serving of requests, and can cut it short; used from one event loop."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Task[None], Story] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def serve(
        self,
        story: Story,
        work: Callable[[asyncio.TaskGroup], Coroutine[object, object, None]],
        receive: Receive,
    ) -> None:
        """Run ``work``, and cancel it as soon as the client has left: the upstream is closed with it.

        ``work`` is handed a group for what it needs beside it. ``story.cut`` says why a cancelled work was
        cancelled.
        """

        async def watch(serving: asyncio.Task[None]) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            story.cut = ClientDisconnected("the client left")
            serving.cancel()

        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(work(tasks))
            watching = tasks.create_task(watch(serving))
            self._open[serving] = story
            serving.add_done_callback(lambda _: watching.cancel())
            serving.add_done_callback(self._open.pop)

    def interrupt(self) -> None:
        """End every request that is still served; each tells its client that we stop."""
        for serving, story in tuple(self._open.items()):
            story.cut = ShuttingDown("the gateway is being stopped; ask again in a moment", retry_after_s=5.0)
            serving.cancel()
