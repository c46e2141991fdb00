"""Events kept back until the commit boundary, within bounds.

Pure. Before the first semantic event there is only metadata (a role, pings, filter results): a little of it
is kept, so that the client gets the answer's beginning as the upstream wrote it; a flood of it is dropped,
and waited out.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from router.chat.types import ChatEvent

__all__ = ["HELD_BYTES", "HELD_EVENTS", "HELD_FOR_S", "HeldEvents"]

HELD_EVENTS: Final = 64
HELD_BYTES: Final = 256 << 10
HELD_FOR_S: Final = 5.0
"""Metadata later than this after the first held event is no part of the answer's beginning."""


class HeldEvents:
    """Keeps at most :data:`HELD_EVENTS` events of :data:`HELD_BYTES` together; endings are always kept."""

    __slots__ = ("_bytes", "_endings", "_events", "_since", "dropped")

    def __init__(self) -> None:
        self._events: deque[ChatEvent] = deque()
        self._bytes = 0
        self._endings = 0
        self._since: float | None = None
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: ChatEvent, now: float) -> None:
        """Keep ``event``, or drop it where the bounds are reached; ``now`` is on any monotonic clock."""
        size = len(event.frame.data) if event.frame is not None else 0
        if event.is_semantic or (event.is_final and self._endings < HELD_EVENTS):
            self._endings += 1
        else:
            if self._since is None:
                self._since = now
            late = now - self._since > HELD_FOR_S
            if late or len(self._events) >= HELD_EVENTS or self._bytes + size > HELD_BYTES:
                self.dropped += 1
                return
        self._bytes += size
        self._events.append(event)

    def pop(self) -> ChatEvent | None:
        """Take the oldest event out; ``None`` where none is left."""
        return self._events.popleft() if self._events else None
