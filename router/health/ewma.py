"""Averages that forget: exponentially weighted, decayed toward a prior while nothing happens.

Pure arithmetic over values and times; knows nothing of what is averaged. ``now`` is in seconds on
whatever clock the caller keeps to; a clock that steps back counts as no time passed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["DecayingPenalty", "HealthEwma", "PeakEwma"]

_HALF = math.log(2.0)


def _half_life_factor(elapsed_s: float, half_life_s: float) -> float:
    """Return what is left of a distance after ``elapsed_s``, in 0..1."""
    return math.exp(-_HALF * max(0.0, elapsed_s) / half_life_s)


@dataclass(slots=True)
class HealthEwma:
    """Share of successes in 0..1, over about the last ``events`` events.

    ``h <- h*a + x*(1-a)`` with ``a = exp(-1/events)``; while idle it returns to ``prior`` with a
    half-life, so that an old failure does not weigh for ever.
    """

    prior: float = 0.8
    events: float = 20.0
    half_life_s: float = 300.0
    _value: float | None = None
    _at: float = 0.0

    def value(self, now: float) -> float:
        """Return the share as it stands at ``now``."""
        if self._value is None:
            return self.prior
        return self.prior + (self._value - self.prior) * _half_life_factor(now - self._at, self.half_life_s)

    def observe(self, sample: float, now: float) -> None:
        """Take one event in: 1 for a success, 0 for a failure, between for half of one."""
        keep = math.exp(-1.0 / self.events)
        self._value = self.value(now) * keep + min(1.0, max(0.0, sample)) * (1.0 - keep)
        self._at = max(now, self._at)

    def export(self) -> tuple[float, float] | None:
        """Return value and time for saving, or ``None`` where nothing was seen."""
        return None if self._value is None else (self._value, self._at)

    def restore(self, value: float, at: float) -> None:
        """Take up a saved value."""
        self._value, self._at = min(1.0, max(0.0, value)), at


@dataclass(slots=True)
class PeakEwma:
    """A cost that jumps to a worse sample at once and comes down slowly (Finagle's peak-EWMA).

    ``worse_is_higher`` is true for times and false for speeds. A better sample is blended in with
    ``w = exp(-dt/tau)``, dt being the time since the last sample, but with a tenth of its weight at
    least, so that a burst of good samples counts. ``None`` until something was seen: unknown is not
    zero. Idle, it returns to ``prior`` where there is one.
    """

    worse_is_higher: bool
    tau_s: float = 60.0
    half_life_s: float = 900.0
    least_blend: float = 0.1
    _value: float | None = None
    _at: float = 0.0

    def value(self, now: float, prior: float | None = None) -> float | None:
        """Return the cost as it stands at ``now``; ``None`` where nothing was ever seen."""
        if self._value is None or prior is None:
            return self._value
        return prior + (self._value - prior) * _half_life_factor(now - self._at, self.half_life_s)

    def observe(self, sample: float, now: float, prior: float | None = None) -> None:
        """Take a sample in; one that is not a positive finite number is no measurement and is ignored."""
        if not math.isfinite(sample) or sample <= 0.0:
            return
        current = self.value(now, prior)
        if current is None or (sample > current) == self.worse_is_higher:
            self._value = sample
        else:
            blend = max(self.least_blend, 1.0 - math.exp(-max(0.0, now - self._at) / self.tau_s))
            self._value = current * (1.0 - blend) + sample * blend
        self._at = max(now, self._at)

    def export(self) -> tuple[float, float] | None:
        """Return value and time for saving, or ``None`` where nothing was seen."""
        return None if self._value is None else (self._value, self._at)

    def restore(self, value: float, at: float) -> None:
        """Take up a saved value; nonsense is ignored."""
        if math.isfinite(value) and value > 0.0:
            self._value, self._at = value, at


@dataclass(slots=True)
class DecayingPenalty:
    """Seconds that failures add to the expected time; halves every ``half_life_s``.

    Linkerd's load biaser for the same trap: an upstream that answers 429 in five milliseconds must not
    look like the fastest one.
    """

    per_failure_s: float = 5.0
    half_life_s: float = 30.0
    cap_s: float = 60.0
    _value: float = 0.0
    _at: float = 0.0

    def value(self, now: float) -> float:
        """Return the seconds to add at ``now``; exactly 0 once they do not matter any more."""
        left = self._value * _half_life_factor(now - self._at, self.half_life_s)
        return left if left >= 0.01 else 0.0  # noqa: PLR2004 - a hundredth of a second

    def add(self, weight: float, now: float) -> None:
        """Count a failure of ``weight`` 0..1."""
        self._value = min(self.cap_s, self.value(now) + self.per_failure_s * max(0.0, weight))
        self._at = max(now, self._at)
