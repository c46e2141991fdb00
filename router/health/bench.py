"""Who is left out until when, and why: the book of benches. Pure; ``now`` is wall-clock seconds.

Knows scopes by name only (a provider, a key's label, a model), never keys themselves. Rules:

* A bench is never shortened: its end is the later of the old and the new one.
* What the upstream stated is taken as it is; a guess of ours doubles with every strike up to a cap.
  Results of requests that were under way when the bench began belong to the same strike.
* After its end the bench is *on probation*: one permit (the probe) shows whether it is over. Success
  strikes the bench out; a new strike makes it longer; without a verdict the next one probes.
* Strikes are forgotten after a quiet time of twice the last bench, an hour at least.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from router.health.outcome import Outcome, OutcomeKind, Provenance, Scope

__all__ = ["Bench", "BenchBook", "BenchKey"]

_GUESS_CAP_S = {
    OutcomeKind.RATE_LIMITED: 600.0,
    OutcomeKind.SLOT_BUSY: 5.0,
    OutcomeKind.BAD_CREDENTIALS: 3_600.0,
}
_FORGET_LEAST_S = 3_600.0
_MOST_STRIKES = 16
# A probe that never reports back makes room for another after this long.
_PROBE_LEASE_S = 900.0
# These end by themselves: there is nothing to prove.
_WITHOUT_PROBATION = frozenset({OutcomeKind.SLOT_BUSY})


@dataclass(frozen=True, slots=True)
class BenchKey:
    """Whom a bench keeps out. ``key_id`` is a key's label; ``model`` the upstream's name of a model."""

    scope: Scope
    provider: str
    key_id: str = ""
    model: str = ""

    def __str__(self) -> str:
        """Return the parts that say something, for a person."""
        parts = (self.provider, self.model, f"key {self.key_id}" if self.key_id else "")
        return " / ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Bench:
    """One bench as it stands. ``strikes`` counts what led to it; ``since`` is its latest strike."""

    key: BenchKey
    until: float
    since: float
    kind: OutcomeKind
    reason: str
    provenance: Provenance
    strikes: int = 1
    probe: int | None = None
    probe_at: float = 0.0

    def active(self, now: float) -> bool:
        """Whether it keeps everybody out at ``now``."""
        return now < self.until

    def probing(self, now: float) -> bool:
        """Whether its end has passed and the one probe is under way."""
        return self.probe is not None and now < self.probe_at + _PROBE_LEASE_S

    def forgotten(self, now: float) -> bool:
        """Whether its strikes count no more."""
        if self.kind in _WITHOUT_PROBATION:
            return now >= self.until + 2 * _GUESS_CAP_S[OutcomeKind.SLOT_BUSY]
        return now >= self.until + max(_FORGET_LEAST_S, 2.0 * (self.until - self.since))


class BenchBook:
    """Every bench there is, by whom it keeps out. ``version`` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._benches: dict[BenchKey, Bench] = {}

    def strike(self, key: BenchKey, outcome: Outcome, started_at: float, now: float) -> Bench:
        """Bench ``key`` for ``outcome`` of a request begun at ``started_at``; return the bench."""
        known = self._benches.get(key)
        if known is not None and known.forgotten(now):
            known = None
        same_strike = known is not None and started_at < known.since
        strikes = 1 if known is None else known.strikes + (0 if same_strike else 1)
        until = now + self._length(outcome, strikes)
        if known is not None and known.until >= until and known.active(now):
            bench = replace(known, strikes=min(strikes, _MOST_STRIKES))
        else:
            bench = Bench(
                key=key,
                until=until,
                since=now,
                # A slot is busy whatever told us so: it returns by itself and may be a last resort.
                kind=OutcomeKind.SLOT_BUSY if key.scope is Scope.SLOT else outcome.kind,
                reason=outcome.detail or outcome.kind.value,
                provenance=outcome.bench_from,
                strikes=min(strikes, _MOST_STRIKES),
            )
        self._put(bench)
        return bench

    def find(self, key: BenchKey, now: float) -> Bench | None:
        """Return the bench of ``key``, active or on probation; ``None`` where nothing is held against it."""
        bench = self._benches.get(key)
        if bench is None:
            return None
        if bench.forgotten(now) or (bench.kind in _WITHOUT_PROBATION and not bench.active(now)):
            return None
        return bench

    def take_probe(self, key: BenchKey, number: int, now: float) -> bool:
        """Make permit ``number`` the probe of a bench on probation; return whether it is one now."""
        bench = self.find(key, now)
        if bench is None or bench.active(now) or bench.probing(now):
            return False
        self._put(replace(bench, probe=number, probe_at=now))
        return True

    def release_probe(self, key: BenchKey, number: int) -> None:
        """Free the place of a probe that ended without a verdict."""
        bench = self._benches.get(key)
        if bench is not None and bench.probe == number:
            self._put(replace(bench, probe=None))

    def succeed(self, key: BenchKey, started_at: float, now: float) -> bool:
        """Strike a bench out for a success begun after it; return whether there was one.

        A success that began before the bench did says nothing about it: a slow answer that overlaps a
        later refusal must not reopen the door.
        """
        bench = self._benches.get(key)
        if bench is None or started_at < bench.since:
            return False
        if bench.active(now) and bench.kind not in _WITHOUT_PROBATION:
            return False
        del self._benches[key]
        self.version += 1
        return True

    def clear(self, keys: Iterable[BenchKey]) -> None:
        """Drop benches by hand: an administrator's word, or a key that was replaced."""
        for key in keys:
            self._benches.pop(key, None)
        self.version += 1

    def prune(self, now: float) -> None:
        """Forget what counts no more."""
        over = [key for key, bench in self._benches.items() if bench.forgotten(now)]
        if over:
            self.clear(over)

    def __len__(self) -> int:
        return len(self._benches)

    def all(self) -> tuple[Bench, ...]:
        """Return every bench, for saving and for pages."""
        return tuple(self._benches.values())

    def restore(self, benches: Iterable[Bench], now: float, furthest_s: float) -> None:
        """Take up saved benches; one that ends absurdly late (a clock was wrong) is cut to ``furthest_s``."""
        for bench in benches:
            if not math.isfinite(bench.until) or bench.forgotten(now):
                continue
            until = min(bench.until, now + furthest_s)
            self._put(replace(bench, until=until, since=min(bench.since, now), probe=None))

    def _put(self, bench: Bench) -> None:
        self._benches[bench.key] = bench
        self.version += 1

    @staticmethod
    def _length(outcome: Outcome, strikes: int) -> float:
        if outcome.bench_from is Provenance.STATED:
            return outcome.bench_s
        cap = max(_GUESS_CAP_S.get(outcome.kind, outcome.bench_s), outcome.bench_s)
        return float(min(cap, outcome.bench_s * 2.0 ** (strikes - 1)))
