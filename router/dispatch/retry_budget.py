"""How much asking in vain the gateway allows itself, over all requests together.

Pure: ``now`` is seconds on any monotonic clock. A tenth of the requests of the last seconds, and one a
second beside them, so that a single person's budget is not always empty. Charged are hops after the second;
once nothing is left, nobody is asked in spite of an open breaker. Whoever is in good standing is asked
whatever the budget says.

Source: the retry budgets of Finagle and Linkerd (a share of the requests and a floor, with a time to live).
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["RetryBudget"]

_SHARE: Final = 0.1
_FLOOR_PER_S: Final = 1.0
_LIVES_S: Final = 10.0


class RetryBudget:
    """Earned by requests, fades within some ten seconds; the floor fills up to ten."""

    __slots__ = ("_at", "_earned", "_floor")

    def __init__(self) -> None:
        self._at = 0.0
        self._earned = 0.0
        self._floor = _FLOOR_PER_S * _LIVES_S

    def note_request(self, now: float) -> None:
        """Earn a request's share."""
        self._advance(now)
        self._earned += _SHARE

    def has_any(self, now: float) -> bool:
        """Whether a try could be taken out."""
        self._advance(now)
        return self._earned >= 1.0 or self._floor >= 1.0

    def withdraw(self, now: float) -> bool:
        """Take one try out; ``False`` where nothing is left."""
        if not self.has_any(now):
            return False
        if self._earned >= 1.0:
            self._earned -= 1.0
        else:
            self._floor -= 1.0
        return True

    def _advance(self, now: float) -> None:
        passed = now - self._at
        if passed <= 0.0:
            return
        self._at = now
        self._earned *= math.exp(-passed / _LIVES_S)
        self._floor = min(_FLOOR_PER_S * _LIVES_S, self._floor + passed * _FLOOR_PER_S)
