"""Time as a value that can be passed.

Knows no timers and no sleeping: it only says what time it is.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Source of both kinds of time; tests hand in ``tests.fakes.clock.FakeClock``."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps back; only differences mean something."""

    def wall(self) -> float:
        """Seconds since 1970-01-01T00:00:00Z; for deadlines that must outlive a restart."""


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        """See :class:`Clock`."""
        return time.monotonic()

    def wall(self) -> float:
        """See :class:`Clock`."""
        return time.time()
