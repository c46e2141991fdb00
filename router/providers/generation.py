"""One generation with everybody who reads it.

Events are kept in a bounded buffer, so that who comes late gets them from the beginning. Knows events and
readers; not who generates, who may join, nor when it is given up (that is
:mod:`router.providers.generations`). Used from one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from router.chat.types import ChatEvent

__all__ = ["Generation", "GenerationReader"]

# What an event weighs beside its frame.
_EVENT_BYTES: Final = 200


class Generation:
    """The events of one answer, from the first on for as long as they fit into ``most_bytes``.

    Beyond that nobody can join any more, what every reader has read is dropped, and the source is held up
    (:meth:`room`) where the slowest reader falls behind by as much.
    """

    def __init__(self, key: bytes, request_id: str, deployment_id: str, *, most_bytes: int) -> None:
        self.key = key
        self.request_id = request_id
        self.deployment_id = deployment_id
        self.waited_s = 0.0
        self.has_slot = False
        self.ended = False
        self.delivered = False
        self.error: Exception | None = None
        self._most_bytes = most_bytes
        self._events: deque[ChatEvent] = deque()
        self._bytes = 0
        self._dropped = 0
        self._readers: set[GenerationReader] = set()
        self._changed = asyncio.Event()
        self._read = asyncio.Event()

    @property
    def readers(self) -> int:
        """How many read it now."""
        return len(self._readers)

    @property
    def is_whole(self) -> bool:
        """Whether its beginning is still there: only then can one more read it."""
        return not self._dropped

    def publish(self, event: ChatEvent) -> None:
        """Take the next event."""
        self._events.append(event)
        self._bytes += _weight(event)
        self._trim()
        self._wake()

    def end(self, error: Exception | None) -> None:
        """Note that no event follows; ``error`` is what every reader gets after the last one."""
        self.ended = True
        self.error = error
        self._wake()

    async def room(self) -> None:
        """Wait while readers are behind by more than may be kept."""
        while self._bytes > self._most_bytes and self._readers:
            self._read.clear()
            await self._read.wait()

    def reader(self) -> GenerationReader:
        """Return one more reader, which begins at the beginning."""
        reader = GenerationReader(self)
        self._readers.add(reader)
        return reader

    def detach(self, reader: GenerationReader) -> None:
        """Forget a reader; a second time changes nothing."""
        self._readers.discard(reader)
        self._trim()
        self._read.set()

    async def event_at(self, position: int) -> ChatEvent | None:
        """Return the event at ``position`` (0: the first), waiting for it; ``None`` after the last one.

        Raises the error that the generation ended with.
        """
        while position - self._dropped >= len(self._events):
            if self.ended:
                if self.error is not None:
                    raise self.error
                self.delivered = True
                return None
            await self._changed.wait()
        return self._events[position - self._dropped]

    def read_on(self) -> None:
        """Take note that a reader has gone on."""
        if self._bytes > self._most_bytes:
            self._trim()
            self._read.set()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _trim(self) -> None:
        if self._bytes <= self._most_bytes:
            return
        slowest = min((reader.position for reader in self._readers), default=self._dropped)
        while self._dropped < slowest and self._events and self._bytes > self._most_bytes // 2:
            self._bytes -= _weight(self._events.popleft())
            self._dropped += 1


class GenerationReader:
    """One who reads a generation from its beginning on."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.position = 0

    async def next(self) -> ChatEvent | None:
        """Return the next event; ``None`` after the last. Raises what the generation ended with."""
        event = await self.generation.event_at(self.position)
        if event is not None:
            self.position += 1
            self.generation.read_on()
        return event


def _weight(event: ChatEvent) -> int:
    return _EVENT_BYTES + (len(event.frame.data) if event.frame is not None else 0)
