"""Keep what happened: a bounded queue, and one task that writes it away in batches.

Knows no database: it writes through a sink that was handed in. Whatever the sink does, no request
notices: a full queue or a failing sink costs records, which are counted, and never an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog
from tenacity import AsyncRetrying, RetryCallState, wait_chain, wait_random

from router.recording.records import RequestRecord

__all__ = ["Recorder", "RecorderStatus"]

_QUEUE_LIMIT = 20_000
_BATCH_LIMIT = 500
# A batch costs about as much as twenty rows; what a crash may lose is bounded by this.
_LINGER_S = 0.25
_RETRY_DELAYS_S = (0.1, 0.5, 2.0)

Sink = Callable[[Sequence[RequestRecord]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RecorderStatus:
    """How recording goes: ``lost`` were given up on, ``degraded`` says why the last write failed."""

    written: int
    lost: int
    waiting: int
    degraded: str | None


class Recorder:
    """Takes records without waiting; :meth:`run` is its one task, owned by the application."""

    def __init__(
        self,
        sink: Sink,
        *,
        observers: Sequence[Callable[[RequestRecord], None]] = (),
        queue_limit: int = _QUEUE_LIMIT,
        retry_delays_s: Sequence[float] = _RETRY_DELAYS_S,
    ) -> None:
        self._sink = sink
        self._observers = tuple(observers)
        self._retry_delays_s = tuple(retry_delays_s)
        self._queue: asyncio.Queue[RequestRecord | None] = asyncio.Queue(maxsize=queue_limit)
        self._closing = False
        self._hurry = asyncio.Event()
        self._written = 0
        self._lost = 0
        self._in_hand = 0
        self._degraded: str | None = None
        self._log = structlog.get_logger("recorder")

    def put(self, record: RequestRecord) -> None:
        """Take a record and show it to the observers (metrics); never waits and never raises."""
        for observe in self._observers:
            try:
                observe(record)
            except Exception as error:  # noqa: BLE001 - a broken counter must not cost an answer
                self._log.warning("an observer failed", reason=str(error), request_id=record.request_id)
        try:
            self._queue.put_nowait(record)
        except asyncio.QueueFull:
            self._lose(1, "the queue is full")

    def status(self) -> RecorderStatus:
        """Return the counters, for the dashboard and the metrics."""
        return RecorderStatus(self._written, self._lost, self._queue.qsize() + self._in_hand, self._degraded)

    async def run(self) -> None:
        """Write until :meth:`close`, then what is left."""
        while True:
            first = await self._queue.get()
            if first is None:
                return
            await self._linger()
            batch, ended = self._drain(first)
            await self._write(batch)
            for _ in batch:
                self._queue.task_done()
            if ended:
                return

    async def flush(self) -> None:
        """Wait until everything that was put so far is written, or given up."""
        self._hurry.set()
        await self._queue.join()
        if not self._closing:
            self._hurry.clear()

    def close(self) -> None:
        """Ask :meth:`run` to write what is left and return; its owner bounds the wait."""
        self._closing = True
        self._hurry.set()
        try:
            self._queue.put_nowait(None)
        except asyncio.QueueFull:
            self._queue.get_nowait()
            self._queue.task_done()
            self._lose(1, "the queue is full")
            self._queue.put_nowait(None)

    async def _linger(self) -> None:
        """Let more records come, unless somebody waits for these."""
        try:
            async with asyncio.timeout(_LINGER_S):
                await self._hurry.wait()
        except TimeoutError:
            return

    def _drain(self, first: RequestRecord) -> tuple[list[RequestRecord], bool]:
        batch = [first]
        while len(batch) < _BATCH_LIMIT and not self._queue.empty():
            record = self._queue.get_nowait()
            if record is None:
                return batch, True
            batch.append(record)
        return batch, False

    async def _write(self, batch: Sequence[RequestRecord]) -> None:
        self._in_hand = len(batch)
        trying = AsyncRetrying(
            # Several gateways that lost one database should not all come back to it at once.
            wait=wait_chain(*(wait_random(delay / 2, delay) for delay in (*self._retry_delays_s, 0.0))),
            stop=self._gives_up,
            after=lambda attempt: self._degrade(str(attempt.outcome and attempt.outcome.exception())),
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            await trying(self._sink, batch)
        except Exception as error:  # noqa: BLE001 - recording never takes anything down with it
            self._lose(len(batch), str(error))
        else:
            self._written += len(batch)
            self._recover()
        self._in_hand = 0

    def _gives_up(self, writing: RetryCallState) -> bool:
        return self._closing or writing.attempt_number > len(self._retry_delays_s)

    def _degrade(self, reason: str) -> None:
        if self._degraded is None:
            self._log.warning("recording is degraded; requests go on", reason=reason)
        self._degraded = reason

    def _recover(self) -> None:
        if self._degraded is not None:
            self._log.info("recording works again", lost=self._lost)
        self._degraded = None

    def _lose(self, count: int, reason: str) -> None:
        first = self._lost == 0
        self._lost += count
        if first:
            self._log.warning("records are lost; requests go on", reason=reason)
