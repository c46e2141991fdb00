"""The bridge between the event loop and the one thread that owns the engine.

The loop side opens requests, reads their events and cancels; the thread loads, steps and reports. They
share two queues and one immutable status. Knows no HTTP, no templates and no JSON.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from local_backend.engine.events import Event, Failed, Finished
from local_backend.engine.loading import LoadedModel
from local_backend.engine.scheduler import Progress, Speed, estimate_wait_s
from local_backend.engine.sequence import GenerationRequest
from local_backend.errors import Cancelled, EngineError, LoadFailed, Loading, Overloaded
from local_backend.kv_cache.sequence_cache import CacheError

__all__ = ["EngineWorker", "EventStream", "Load", "Phase", "WorkerStatus"]

_log = logging.getLogger(__name__)

Load: TypeAlias = Callable[[Callable[[float], None]], LoadedModel]
"""Loads the model in the worker's thread; reports progress from 0 to 1 through its argument."""

_SHORTEST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0


class Phase(StrEnum):
    """Where the worker stands."""

    LOADING = "loading"
    READY = "ok"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A snapshot, replaced as a whole by the thread after every step."""

    phase: Phase = Phase.LOADING
    progress: float = 0.0
    error: str | None = None
    ahead: tuple[Progress, ...] = ()
    speed: Speed = field(default_factory=Speed)
    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_tokens: int = 0
    decode_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Submit:
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class _Cancel:
    request_id: str


@dataclass(frozen=True, slots=True)
class _CancelAll:
    reason: str


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Message: TypeAlias = _Submit | _Cancel | _CancelAll | _Stop


class EventStream:
    """The events of one request, on the loop's side. Close it in every ending."""

    def __init__(self, request_id: str, close: Callable[[str, bool], None]) -> None:
        self.request_id = request_id
        self._close = close
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._ended = False
        self._closed = False

    def put(self, event: Event) -> None:
        """Take an event from the worker; on the loop."""
        self._events.put_nowait(event)

    async def receive(self, within_s: float | None = None) -> Event | None:
        """Wait for the next event; ``None`` when none came ``within_s`` seconds.

        Raises the error of a request that failed. Nothing follows ``Finished``.
        """
        try:
            async with asyncio.timeout(within_s):
                event = await self._events.get()
        except TimeoutError:
            return None
        if isinstance(event, (Finished, Failed)):
            self._ended = True
        if isinstance(event, Failed):
            raise event.error
        return event

    def close(self) -> None:
        """Release the place in the queue; cancels the request if it has not ended."""
        if not self._closed:
            self._closed = True
            self._close(self.request_id, not self._ended)


class EngineWorker:
    """Owns the thread. Every public method is called on the event loop that :meth:`start` was given."""

    def __init__(self, load: Load, *, queue_limit: int) -> None:
        self._load = load
        self._queue_limit = queue_limit
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._streams: dict[str, EventStream] = {}
        self._interrupted: set[str] = set()
        self._status = WorkerStatus()
        self._model: LoadedModel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_loaded: Callable[[WorkerStatus], None] = lambda _: None
        self._started = time.monotonic()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def status(self) -> WorkerStatus:
        """The newest snapshot."""
        return self._status

    @property
    def queue_limit(self) -> int:
        """How many requests may wait behind the running one."""
        return self._queue_limit

    @property
    def open_requests(self) -> int:
        """Requests that hold a place: running and waiting."""
        return len(self._streams)

    def model(self) -> LoadedModel:
        """Return the loaded model. Raises ``Loading`` or ``LoadFailed`` before there is one."""
        status, model = self._status, self._model
        if status.phase is Phase.FAILED:
            raise LoadFailed(f"the model could not be loaded: {status.error}")
        if model is None or status.phase is Phase.LOADING:
            raise Loading(
                f"the model is loading ({status.progress:.0%})", retry_after_s=self.loading_left_s()
            )
        return model

    def wait_estimate_s(self) -> float:
        """Seconds that a request arriving now would wait for the slot."""
        return estimate_wait_s(self._status.ahead, self._status.speed)

    def loading_left_s(self) -> float:
        """Seconds that loading will still take, guessed from how far it is."""
        elapsed = time.monotonic() - self._started
        progress = self._status.progress
        left = elapsed * (1.0 - progress) / max(progress, 0.05)
        return min(max(left, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)

    def start(
        self, loop: asyncio.AbstractEventLoop, on_loaded: Callable[[WorkerStatus], None] | None = None
    ) -> None:
        """Begin loading. ``on_loaded`` is called on the loop when that succeeded or failed."""
        self._loop = loop
        if on_loaded is not None:
            self._on_loaded = on_loaded
        self._thread.start()

    def open(self, request: GenerationRequest) -> EventStream:
        """Queue a request. Raises ``Overloaded`` when that is full, ``Loading`` before there is a model."""
        self.model()
        if self._stopping:
            raise Cancelled("the engine is stopping")
        if len(self._streams) > self._queue_limit:
            wait = min(max(self.wait_estimate_s(), _SHORTEST_WAIT_S), _LONGEST_WAIT_S)
            raise Overloaded(
                f"the queue is full: one request runs and {self._queue_limit} wait", retry_after_s=wait
            )
        stream = EventStream(request.request_id, self._closed)
        self._streams[request.request_id] = stream
        self._inbox.put(_Submit(request))
        return stream

    def cancel_all(self, reason: str) -> None:
        """End every open request with an error event and accept no more."""
        self._stopping = True
        self._interrupted.update(self._streams)
        self._inbox.put(_CancelAll(reason))

    def stop(self) -> None:
        """Ask the thread to end after its present step."""
        self.cancel_all("the engine is stopping")
        self._inbox.put(_Stop())

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread, blocking; whether it ended in time. It is a daemon, so no exit waits on it."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _closed(self, request_id: str, cancel: bool) -> None:
        self._streams.pop(request_id, None)
        if cancel:
            # The set is read between layers, the message between steps.
            self._interrupted.add(request_id)
            self._inbox.put(_Cancel(request_id))

    # The thread's side.

    def _run(self) -> None:
        try:
            model = self._load(self._progress)
        except EngineError as error:
            self._fail(str(error))
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the health page must say so
            _log.exception("loading failed")
            self._fail(f"{type(error).__name__}: {error}")
            return
        self._model = model
        self._status = WorkerStatus(phase=Phase.READY, progress=1.0)
        self._on_loop(lambda: self._on_loaded(self._status))
        try:
            self._serve(model)
        except Exception as error:  # noqa: BLE001 - nobody may wait for a thread that is gone
            _log.exception("the engine's thread ended")
            self._fail(f"{type(error).__name__}: {error}")
            self._on_loop(self._fail_all)
        finally:
            model.engine.close()

    def _serve(self, model: LoadedModel) -> None:
        engine = model.engine
        while True:
            for message in self._messages(block=engine.idle):
                if isinstance(message, _Stop):
                    return
                self._deliver(self._handle(model, message))
            events = engine.step(self._interrupted.__contains__)
            self._publish(model)
            self._deliver(events)
            if events and engine.idle:
                self._check(model)

    def _messages(self, *, block: bool) -> list[_Message]:
        messages = [self._inbox.get()] if block else []
        while not self._inbox.empty():
            messages.append(self._inbox.get_nowait())
        return messages

    def _handle(self, model: LoadedModel, message: _Message) -> list[Event]:
        engine = model.engine
        if isinstance(message, _Submit):
            try:
                engine.submit(message.request)
            except EngineError as error:
                return [Failed(message.request.request_id, error)]
            return []
        if isinstance(message, _Cancel):
            self._interrupted.discard(message.request_id)
            return engine.cancel(message.request_id)
        if isinstance(message, _CancelAll):
            ended = [progress.request_id for progress in engine.ahead]
            for request_id in ended:
                engine.cancel(request_id)
            return [Failed(request_id, Cancelled(message.reason)) for request_id in ended]
        return []

    def _publish(self, model: LoadedModel) -> None:
        meter = model.engine.meter
        self._status = WorkerStatus(
            phase=Phase.READY,
            progress=1.0,
            ahead=model.engine.ahead,
            speed=meter.speed,
            prefill_tokens=meter.prefill_tokens,
            prefill_seconds=meter.prefill_seconds,
            decode_tokens=meter.decode_tokens,
            decode_seconds=meter.decode_seconds,
        )

    def _check(self, model: LoadedModel) -> None:
        try:
            model.engine.check_integrity(rows=False)
        except CacheError:
            _log.exception("the cache's books do not add up; it is emptied")
            model.engine.forget()

    def _progress(self, share: float) -> None:
        self._status = WorkerStatus(phase=Phase.LOADING, progress=min(max(share, 0.0), 1.0))

    def _fail(self, problem: str) -> None:
        _log.error("the model could not be loaded: %s", problem)
        self._status = WorkerStatus(phase=Phase.FAILED, error=problem)
        self._on_loop(lambda: self._on_loaded(self._status))

    def _deliver(self, events: list[Event]) -> None:
        if events:
            self._on_loop(lambda: self._hand_out(events))

    def _fail_all(self) -> None:
        error = LoadFailed("the engine's thread ended; the process must be started again")
        self._hand_out([Failed(request_id, error) for request_id in self._streams])

    def _hand_out(self, events: list[Event]) -> None:
        for event in events:
            stream = self._streams.get(event.request_id)
            if stream is not None:
                stream.put(event)

    def _on_loop(self, callback: Callable[[], None]) -> None:
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(callback)
        except RuntimeError:
            _log.debug("the event loop is gone; nobody is left to tell")
