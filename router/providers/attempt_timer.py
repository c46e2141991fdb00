"""Which deadline of an attempt comes next.

Pure arithmetic on the event loop's clock: the time is handed in. What counts as progress is the caller's to
say.
"""

from __future__ import annotations

from typing import Final

from router.errors import TimeoutPhase, UpstreamTimeout
from router.providers.base import AttemptDeadlines

__all__ = ["AFTER_FINISH_S", "AttemptTimer"]

AFTER_FINISH_S: Final = 5.0
"""How long usage and ``[DONE]`` are waited for once every choice has its finish reason."""

_SAID: Final = {
    TimeoutPhase.CONNECT: "no connection within {:.1f} s",
    TimeoutPhase.FIRST_EVENT: "no first event within {:.1f} s",
    TimeoutPhase.STALL: "no content for {:.1f} s within the answer",
    TimeoutPhase.TOTAL: "the answer was not complete within {:.1f} s",
}


class AttemptTimer:
    """Keeps the deadlines of one attempt. All times are seconds on one monotonic clock."""

    __slots__ = ("_deadlines", "_limit", "_phase", "_total")

    def __init__(self, deadlines: AttemptDeadlines, now: float) -> None:
        self._deadlines = deadlines
        self._total = now + deadlines.total_s
        self._limit = now + deadlines.first_event_s
        self._phase = TimeoutPhase.FIRST_EVENT

    def next_deadline(self) -> tuple[float, TimeoutPhase]:
        """Return the soonest deadline, and which one it is."""
        if self._total <= self._limit:
            return self._total, TimeoutPhase.TOTAL
        return self._limit, self._phase

    def progressed(self, now: float, *, semantic: bool) -> None:
        """Note content at ``now``; before the first semantic event other content moves nothing."""
        if semantic:
            self._phase = TimeoutPhase.STALL
        if self._phase is TimeoutPhase.STALL:
            self._limit = now + self._deadlines.stall_s

    def finished(self, now: float) -> None:
        """Note that only the trailer may follow: it is not worth a long wait."""
        self._phase = TimeoutPhase.STALL
        self._limit = now + min(AFTER_FINISH_S, self._deadlines.stall_s)

    def await_whole(self) -> None:
        """Note that nothing can be seen of the answer before it is whole: only the total bounds it."""
        self._limit = self._total

    def error(self, phase: TimeoutPhase) -> UpstreamTimeout:
        """Build the error of a deadline that passed."""
        bounds = {
            TimeoutPhase.CONNECT: self._deadlines.connect_s,
            TimeoutPhase.FIRST_EVENT: self._deadlines.first_event_s,
            TimeoutPhase.STALL: self._deadlines.stall_s,
            TimeoutPhase.TOTAL: self._deadlines.total_s,
        }
        return UpstreamTimeout(_SAID[phase].format(bounds[phase]), phase=phase)
