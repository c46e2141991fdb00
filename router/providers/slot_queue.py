"""Whose turn it is at a few slots: a bounded queue in which nobody starves.

Pure: times are handed in. Order is by arrival, a background request counting as one that came
:data:`BACKGROUND_HANDICAP_S` later: that is first come, first served within a class, interactive before
background, and still nobody is overtaken for longer than the handicap, however many come. A full queue takes
an interactive request in place of the last one that would be served after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from router.chat.types import Priority

__all__ = ["BACKGROUND_HANDICAP_S", "Entry", "SlotQueue"]

BACKGROUND_HANDICAP_S: Final = 30.0


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A place in the order: ``due`` is the time of arrival that counts; ``number`` breaks ties."""

    due: float
    number: int


class SlotQueue:
    """Numbers that run and numbers that wait. ``slots`` run at once, ``limit`` more may wait."""

    def __init__(self, slots: int, limit: int, *, handicap_s: float = BACKGROUND_HANDICAP_S) -> None:
        self.slots = slots
        self.limit = limit
        self._handicap_s = handicap_s
        self._running: set[int] = set()
        self._waiting: dict[int, Entry] = {}
        self._issued = 0

    @property
    def running(self) -> frozenset[int]:
        """Those who have a slot."""
        return frozenset(self._running)

    @property
    def waiting(self) -> tuple[int, ...]:
        """Those who wait, the next one first."""
        return tuple(entry.number for entry in sorted(self._waiting.values()))

    @property
    def is_full(self) -> bool:
        """Whether one more, without priority over anybody, would not even be let wait."""
        return len(self._running) >= self.slots and len(self._waiting) >= self.limit

    def enter(self, now: float, priority: Priority) -> tuple[int | None, int | None]:
        """Take one more in; return its number, and whose place it took where the queue was full.

        ``None`` as the number: there is no room.
        """
        number = self._issued + 1
        due = now + (self._handicap_s if priority is Priority.BACKGROUND else 0.0)
        displaced: int | None = None
        if self.is_full:
            last = max(self._waiting.values(), default=None)
            if last is None or last <= Entry(due, number):
                return None, None
            displaced = last.number
            del self._waiting[displaced]
        self._issued = number
        if len(self._running) < self.slots:
            self._running.add(number)
        else:
            self._waiting[number] = Entry(due, number)
        return number, displaced

    def ahead_of(self, number: int | None, now: float, priority: Priority) -> tuple[int, ...]:
        """Return who waits before ``number``, or before one that would arrive now (``None``)."""
        own = self._waiting.get(number) if number is not None else None
        if own is None:
            handicap = self._handicap_s if priority is Priority.BACKGROUND else 0.0
            own = Entry(now + handicap, self._issued + 1)
        return tuple(entry.number for entry in sorted(self._waiting.values()) if entry < own)

    def leave(self, number: int) -> tuple[int, ...]:
        """Take one out, wherever it is; return those who have a slot now and had none before."""
        self._waiting.pop(number, None)
        self._running.discard(number)
        granted: list[int] = []
        while self._waiting and len(self._running) < self.slots:
            first = min(self._waiting.values()).number
            del self._waiting[first]
            self._running.add(first)
            granted.append(first)
        return tuple(granted)
