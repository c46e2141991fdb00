"""A local engine without a process or a socket, for tests in virtual time.

The transport answers chats token by token with pauses, as many at a time as come, and counts them: an engine
with one slot must never see two. ``steps`` may replace the usual answer of the next calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson

from router.catalog.catalog import EngineLaunch
from router.providers.engine_process import EngineAddress, EnginePhase
from router.providers.local_engine import LocalEngineProvider
from tests.fakes.clock import LoopClock

__all__ = ["FakeProcess", "SlowEngine", "engine_provider"]


class SlowEngine(httpx.AsyncBaseTransport):
    """``prefill_s`` to the first of ``tokens``, then one each ``interval_s``; ``failures`` come first."""

    def __init__(self, *, prefill_s: float = 1.0, tokens: int = 10, interval_s: float = 0.1) -> None:
        self.prefill_s = prefill_s
        self.tokens = tokens
        self.interval_s = interval_s
        self.failures: list[int | Exception] = []
        self.bodies: list[dict[str, Any]] = []
        self.health: Any = {"status": "ok"}
        self.health_asked = 0
        self.open = 0
        self.most_open = 0
        self.finished = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/health":
            self.health_asked += 1
            return httpx.Response(200, json=self.health)
        self.bodies.append(orjson.loads(await request.aread()))
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return httpx.Response(failure, json={"error": {"message": "scripted"}})
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, stream=_Answer(self, len(self.bodies)))


class _Answer(httpx.AsyncByteStream):
    def __init__(self, engine: SlowEngine, number: int) -> None:
        self._engine = engine
        self._number = number
        self._is_open = True
        engine.open += 1
        engine.most_open = max(engine.most_open, engine.open)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        engine = self._engine
        yield self._frame({"role": "assistant", "content": ""})
        await asyncio.sleep(engine.prefill_s)
        for token in range(engine.tokens):
            if token:
                await asyncio.sleep(engine.interval_s)
            yield self._frame({"content": f"{self._number}:{token} "})
        engine.finished += 1
        yield self._frame({}, "stop") + b"data: [DONE]\n\n"

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            self._engine.open -= 1

    def _frame(self, delta: dict[str, str], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        frame = {
            "id": f"answer-{self._number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
        return b"data: " + orjson.dumps(frame) + b"\n\n"


class FakeProcess:
    """An engine's process that a test moves from phase to phase."""

    def __init__(self) -> None:
        self.name = "fake"
        self.phase = EnginePhase.READY
        self.detail = ""
        self.address: EngineAddress | None = EngineAddress("http://engine.test/v1", "token")
        self._changed = asyncio.Condition()

    async def enter(self, phase: EnginePhase, detail: str = "") -> None:
        self.phase, self.detail = phase, detail
        async with self._changed:
            self._changed.notify_all()

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def until_settled(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.phase in {EnginePhase.READY, EnginePhase.STOPPED})


@asynccontextmanager
async def engine_provider(engine: SlowEngine, **launch: Any) -> AsyncIterator[LocalEngineProvider]:
    """Run a provider of kind ``engine`` on that engine; ``launch`` are fields of its ``engine`` block."""
    provider = LocalEngineProvider(
        EngineLaunch("m", 8_192, **launch),
        process=FakeProcess(),  # type: ignore[arg-type]
        client=httpx.AsyncClient(transport=engine),
        clock=LoopClock(),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(provider.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        yield provider
        await provider.aclose()
