"""How long to wait before something that died is started again. Pure but for the generator handed in."""

from __future__ import annotations

import random
from typing import Final

__all__ = ["HEALTHY_S", "RestartPauses"]

HEALTHY_S: Final = 30.0
"""Whoever was ready for this long has earned a fresh start."""


class RestartPauses:
    """Pauses that double from ``first_s`` to ``longest_s``, each shortened by up to half at random."""

    def __init__(self, rng: random.Random, *, first_s: float = 0.5, longest_s: float = 60.0) -> None:
        self._rng = rng
        self._first_s = first_s
        self._longest_s = longest_s
        self.failures = 0

    def next_pause(self, healthy_for_s: float) -> float:
        """Return the pause after a life that was healthy for so many seconds."""
        if healthy_for_s >= HEALTHY_S:
            self.failures = 0
        # The exponent is bounded so that a machine left alone for a year does not overflow.
        pause = min(self._longest_s, self._first_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return pause * self._rng.uniform(0.5, 1.0)
