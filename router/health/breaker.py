"""A circuit breaker: closed, open, half-open. Pure; every method takes ``now`` in wall-clock seconds.

Knows no deployment, no error and no clock. It counts failures by weight and hands out numbered permits:

* **closed**: everybody gets a permit. It opens on ``consecutive`` failures in a row, or where more than
  ``ratio`` of at least ``least_calls`` recent calls failed (counts fade with ``window_s``).
* **open**: nobody does until a deadline. The open time doubles with each opening up to a cap, is jittered,
  and halves its exponent with every ``forgive_s`` of health. A deadline is never moved nearer.
* **half-open** (the deadline has passed, lazily): exactly one probe. Its success closes, its failure opens
  for longer. A probe that never reports is replaced after ``probe_lease_s``.

Every change of state starts a new *generation*. A result whose permit is of an older generation, or of a
superseded probe, is late: it changes nothing. A *last resort* permit is given also while open, for the
panic rule; its success closes the breaker (the upstream has answered), its failure does not lengthen the
open time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from router.health.jitter import Randomness
from router.health.snapshot import BreakerState

__all__ = ["Breaker", "BreakerPermit", "BreakerSettings", "SavedBreaker"]


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """Thresholds and times of a breaker; seconds, counts and shares."""

    consecutive: float = 5.0
    ratio: float = 0.5
    least_calls: float = 5.0
    window_s: float = 60.0
    open_s: float = 10.0
    cap_s: float = 300.0
    jitter: float = 0.2
    forgive_s: float = 300.0
    probe_lease_s: float = 900.0
    ramp_s: float = 30.0
    ramp_from: float = 0.1


@dataclass(frozen=True, slots=True)
class BreakerPermit:
    """Leave for one call. ``number`` is unique within its breaker."""

    number: int
    generation: int
    probe: bool = False
    last_resort: bool = False


@dataclass(frozen=True, slots=True)
class SavedBreaker:
    """What is kept over a restart: an opening that may still run, and how often it opened."""

    open_until: float
    opened_at: float
    openings: float


@dataclass(slots=True)
class Breaker:
    """One circuit. ``version`` grows with every change that others can see."""

    settings: BreakerSettings = field(default_factory=BreakerSettings)
    version: int = 0
    _generation: int = 0
    _issued: int = 0
    _open_until: float | None = None
    _opened_at: float = 0.0
    _openings: float = 0.0
    _in_a_row: float = 0.0
    _calls: float = 0.0
    _failed: float = 0.0
    _counted_at: float = 0.0
    _probe: int | None = None
    _probe_at: float = 0.0
    _closed_at: float | None = None

    def state(self, now: float) -> BreakerState:
        """Return the state at ``now``."""
        if self._open_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self._open_until else BreakerState.HALF_OPEN

    @property
    def open_until(self) -> float | None:
        """The wall-clock deadline of the opening; ``None`` while closed."""
        return self._open_until

    def probing(self, now: float) -> bool:
        """Whether the one probe is under way."""
        return self._probe is not None and now < self._probe_at + self.settings.probe_lease_s

    def ramp(self, now: float) -> float:
        """Return how far it is trusted again since it closed: from ``ramp_from`` up to 1."""
        if self._closed_at is None:
            return 1.0
        passed = max(0.0, now - self._closed_at) / self.settings.ramp_s
        return min(1.0, self.settings.ramp_from + (1.0 - self.settings.ramp_from) * passed)

    def changes_at(self, now: float) -> float:
        """Return the next moment at which the state changes by itself; infinity where none."""
        if self._open_until is not None and now < self._open_until:
            return self._open_until
        return self._probe_at + self.settings.probe_lease_s if self.probing(now) else math.inf

    def admits(self, now: float) -> bool:
        """Whether :meth:`admit` would give a permit."""
        return self._open_until is None or (now >= self._open_until and not self.probing(now))

    def admit(self, now: float, *, last_resort: bool = False) -> BreakerPermit | None:
        """Give a permit, or ``None`` where the call has to be left out."""
        if self._open_until is None:
            return self._issue()
        if not self.admits(now):
            return self._issue(last_resort=True) if last_resort else None
        permit = self._issue(probe=True)
        self._probe, self._probe_at = permit.number, now
        self.version += 1
        return permit

    def succeed(self, permit: BreakerPermit, now: float) -> bool:
        """Take in a success; return whether it closed the breaker."""
        if permit.generation != self._generation:
            return False
        if self._open_until is None:
            self._count(0.0, now)
            self._in_a_row = 0.0
            self._forgive(now)
            return False
        if permit.probe and permit.number != self._probe:
            return False
        self._close(now)
        return True

    def fail(self, permit: BreakerPermit, weight: float, now: float, rng: Randomness) -> bool:
        """Take in a failure of ``weight`` in (0, 1]; return whether it opened the breaker."""
        if permit.generation != self._generation or weight <= 0.0:
            return False
        if self._open_until is not None:
            if not permit.probe or permit.number != self._probe:
                return False
            self._open(now, rng)
            return True
        self._forgive(now)
        self._count(min(1.0, weight), now)
        self._in_a_row += min(1.0, weight)
        settings = self.settings
        if self._in_a_row >= settings.consecutive or (
            self._calls >= settings.least_calls and self._failed > settings.ratio * self._calls
        ):
            self._open(now, rng)
            return True
        return False

    def release(self, permit: BreakerPermit) -> None:
        """Take a permit back without a verdict; a probe's place is free again."""
        if permit.probe and permit.number == self._probe:
            self._probe = None
            self.version += 1

    def export(self) -> SavedBreaker | None:
        """Return what is worth keeping; ``None`` where it never opened."""
        if self._open_until is None and self._openings < 1.0:
            return None
        return SavedBreaker(self._open_until or 0.0, self._opened_at, self._openings)

    def restore(self, saved: SavedBreaker, now: float) -> None:
        """Take up what was saved; an opening can end at most ``cap_s`` with its jitter from ``now``."""
        settings = self.settings
        self._openings = min(16.0, max(0.0, saved.openings))
        self._opened_at = min(saved.opened_at, now)
        if saved.open_until > 0.0:
            furthest = now + settings.cap_s * (1.0 + settings.jitter)
            self._open_until = min(saved.open_until, furthest)
            self._generation += 1
            self.version += 1

    def _issue(self, *, probe: bool = False, last_resort: bool = False) -> BreakerPermit:
        self._issued += 1
        return BreakerPermit(self._issued, self._generation, probe, last_resort)

    def _count(self, weight: float, now: float) -> None:
        fade = math.exp(-max(0.0, now - self._counted_at) / self.settings.window_s)
        self._calls = self._calls * fade + 1.0
        self._failed = self._failed * fade + weight
        self._counted_at = max(now, self._counted_at)

    def _forgive(self, now: float) -> None:
        """Halve the exponent of the open time for every ``forgive_s`` closed."""
        if self._openings <= 0.0 or self._closed_at is None:
            return
        periods = max(0.0, now - self._closed_at) // self.settings.forgive_s
        if periods >= 1.0:
            self._openings *= 0.5 ** min(periods, 64.0)
            self._openings = self._openings if self._openings >= 0.5 else 0.0  # noqa: PLR2004 - half of one
            self._closed_at += periods * self.settings.forgive_s

    def _open(self, now: float, rng: Randomness) -> None:
        settings = self.settings
        length = min(settings.cap_s, settings.open_s * 2.0 ** min(self._openings, 16.0))
        length *= 1.0 + settings.jitter * (2.0 * rng.random() - 1.0)
        self._openings = min(16.0, self._openings + 1.0)
        self._open_until = max(self._open_until or 0.0, now + length)
        self._opened_at = now
        self._generation += 1
        self.version += 1
        self._probe = None
        self._closed_at = None

    def _close(self, now: float) -> None:
        self._open_until = None
        self._generation += 1
        self.version += 1
        self._probe = None
        self._closed_at = now
        self._in_a_row = self._calls = self._failed = 0.0
