"""An engine on this machine that the gateway starts and watches: kind ``engine``.

Speaks the OpenAI wire to whatever :mod:`router.providers.engine_process` keeps running, and counts its
slots, so that routing knows the wait. Knows nothing of what the engine computes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

import httpx

from router.catalog.catalog import Deployment, EngineLaunch
from router.chat.types import ChatEvent, ChatRequest
from router.clock import Clock
from router.errors import UpstreamStatus
from router.providers.base import AttemptDeadlines, ProviderStatus
from router.providers.credentials import ProviderKeys
from router.providers.engine_process import EnginePhase, EngineProcess
from router.providers.exchange import UpstreamCall, exchange
from router.providers.openai_compatible import chat_body, chat_headers

__all__ = ["LocalEngineProvider", "SlotBook"]

_TOO_MANY: Final = 429
_UNAVAILABLE: Final = 503
_FIRST_GUESS_S: Final = 10.0
# How much a new duration moves the estimate.
_LEARNING: Final = 0.3
_LOADING_RETRY_S: Final = 5.0


class SlotBook:
    """Counts the requests at an engine, and estimates the wait of one more. Times are seconds, handed in."""

    def __init__(self, slots: int, queue_limit: int) -> None:
        self._slots = slots
        self._queue_limit = queue_limit
        self._duration_s = _FIRST_GUESS_S
        self._running: dict[int, float] = {}
        self._issued = 0

    @property
    def in_flight(self) -> int:
        """Requests that run or wait."""
        return len(self._running)

    @property
    def is_full(self) -> bool:
        """Whether one more would not even be let wait."""
        return len(self._running) >= self._slots + self._queue_limit

    def enter(self, now: float) -> int:
        """Note a request and return its number."""
        self._issued += 1
        self._running[self._issued] = now
        return self._issued

    def leave(self, number: int, now: float, *, completed: bool) -> None:
        """Note that a request is over; only a completed one teaches how long they take."""
        started = self._running.pop(number)
        if completed:
            # With others before it, part of the time was waiting: shared evenly, that is about right.
            took = (now - started) / (1 + len(self._running) // self._slots)
            self._duration_s += _LEARNING * (took - self._duration_s)

    def expected_wait_s(self, now: float) -> float:
        """Estimate how long one more request would wait for a slot."""
        ahead = len(self._running) - self._slots + 1
        if ahead <= 0:
            return 0.0
        oldest = now - min(self._running.values())
        return max(0.0, ahead * self._duration_s / self._slots - min(oldest, self._duration_s))


class LocalEngineProvider:
    """One engine with its process. The application runs :meth:`run` in its task group."""

    def __init__(
        self, launch: EngineLaunch, *, process: EngineProcess, client: httpx.AsyncClient, clock: Clock
    ) -> None:
        self.process = process
        self._slots = SlotBook(launch.slots, launch.queue_limit)
        self._client = client
        self._clock = clock
        self._task: asyncio.Task[object] | None = None

    async def run(self) -> None:
        """Keep the engine running until cancelled, or until :meth:`aclose`; then it is gone."""
        self._task = asyncio.current_task()
        try:
            await self.process.run()
        finally:
            self._task = None

    def stream(
        self,
        request: ChatRequest,
        deployment: Deployment,
        deadlines: AttemptDeadlines,
        *,
        key_label: str | None = None,  # noqa: ARG002 - the engine's one token is made anew at every start
    ) -> AsyncIterator[ChatEvent]:
        """See :class:`~router.providers.base.Provider`. What cannot be served now is refused at once."""
        return self._stream(request, deployment, deadlines)

    async def _stream(
        self, request: ChatRequest, deployment: Deployment, deadlines: AttemptDeadlines
    ) -> AsyncGenerator[ChatEvent]:
        address = self.process.address
        if address is None or self.process.phase is not EnginePhase.READY:
            raise UpstreamStatus(
                self.process.detail,
                upstream_status=_UNAVAILABLE,
                upstream_code="engine_loading",
                retry_after_s=_LOADING_RETRY_S,
            )
        if self._slots.is_full:
            raise UpstreamStatus(
                "every slot is taken and the queue is full",
                upstream_status=_TOO_MANY,
                upstream_code="queue_full",
                retry_after_s=self._slots.expected_wait_s(self._clock.monotonic()),
            )
        call = UpstreamCall(
            url=f"{address.url}/chat/completions",
            headers=chat_headers(address.token),
            body=chat_body(request, deployment),
            keys=ProviderKeys({"engine": address.token}),
        )
        number = self._slots.enter(self._clock.monotonic())
        completed = False
        try:
            async with aclosing(exchange(self._client, call, deadlines, self._clock)) as events:
                async for event in events:
                    yield event
            completed = True
        finally:
            self._slots.leave(number, self._clock.monotonic(), completed=completed)

    def status(self) -> ProviderStatus:
        """See :class:`~router.providers.base.Provider`."""
        ready = self.process.phase is EnginePhase.READY
        wait = self._slots.expected_wait_s(self._clock.monotonic())
        return ProviderStatus(
            configured=True, ready=ready, detail=self.process.detail, expected_wait_s=wait if ready else 0.0
        )

    async def aclose(self) -> None:
        """Stop the engine, where its task group has not done so, and close the connections."""
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait({task})
        await self._client.aclose()
