"""Who of the judge's candidates may be asked now: breakers and waits of the judge's own.

Pure; ``now`` is wall-clock seconds. This state is apart from the health tracker's: a judge's failure benches
nobody who serves requests, and their failures keep nobody from judging.

* Each candidate has a breaker that opens on the first failure, and a wait where an upstream stated one. So
  the next request asks the next candidate.
* The lane has a breaker above them, for failures that cost the client time (nobody answered). It opens on
  two in a row: where nobody can be reached, the candidates are not tried out one by one, three seconds each.

Both are the one :class:`~router.health.breaker.Breaker`: permits carry a generation, half-open admits a
single probe, a late result changes nothing.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from router.health.breaker import Breaker, BreakerPermit, BreakerSettings
from router.health.jitter import Randomness
from router.health.outcome import Outcome, OutcomeKind
from router.health.snapshot import BreakerState

__all__ = ["MALFORMED", "CandidateView", "JudgePermit", "JudgeStanding", "LaneView"]

MALFORMED = "malformed"
"""The word for an answer that is no verdict, beside the kinds of outcomes."""

_CAP_S = 300.0
_LONGEST_WAIT_S = 3_600.0
_ERROR_TEXT = 300
_TIMELY_TWICE = 2.0
# One answer that is no verdict may be the conversation's doing; two in a row are the model's.
_MALFORMED_WEIGHT = 0.5
_NOBODY_ANSWERED = frozenset({OutcomeKind.TIMED_OUT, OutcomeKind.UNREACHABLE})
_SILENT = frozenset({OutcomeKind.CLIENT_LEFT})


@dataclass(frozen=True, slots=True)
class JudgePermit:
    """Leave to ask one candidate once."""

    deployment_id: str
    own: BreakerPermit
    lane: BreakerPermit


@dataclass(frozen=True, slots=True)
class CandidateView:
    """One candidate of the judge at a moment; times are wall-clock seconds."""

    deployment_id: str
    breaker: BreakerState
    breaker_until: float | None
    waits_until: float | None
    calls: int
    successes: int
    last_error: str | None
    last_error_at: float | None


@dataclass(frozen=True, slots=True)
class LaneView:
    """The lane at a moment. ``in_flight`` counts calls that run."""

    breaker: BreakerState
    breaker_until: float | None
    in_flight: int
    candidates: tuple[CandidateView, ...]


@dataclass(slots=True)
class _Candidate:
    deployment_id: str
    breaker: Breaker
    waits_until: float = 0.0
    calls: int = 0
    successes: int = 0
    last_error: str | None = None
    last_error_at: float | None = None


@dataclass(slots=True)
class JudgeStanding:
    """The state of the lane: the only owner, used from one thread.

    ``candidates`` are deployment ids in order of preference, ``open_s`` how long a breaker is open first,
    ``timeout_s`` how long a call may take.
    """

    candidates: Sequence[str]
    open_s: float
    timeout_s: float
    rng: Randomness
    _lane: Breaker = field(init=False)
    _known: dict[str, _Candidate] = field(init=False)
    _in_flight: int = 0

    def __post_init__(self) -> None:
        self._lane = Breaker(self._settings(_TIMELY_TWICE))
        self._known = {one: _Candidate(one, Breaker(self._settings(1.0))) for one in self.candidates}

    def admit(self, now: float, usable: Container[str]) -> JudgePermit | None:
        """Give leave to ask the first of ``usable`` who may be asked; ``None`` where nobody may."""
        if not self._lane.admits(now):
            return None
        for candidate in self._known.values():
            if candidate.deployment_id not in usable or now < candidate.waits_until:
                continue
            own = candidate.breaker.admit(now)
            if own is None:
                continue
            lane = self._lane.admit(now)
            if lane is None:  # pragma: no cover - admits() has just said otherwise
                candidate.breaker.release(own)
                return None
            candidate.calls += 1
            self._in_flight += 1
            return JudgePermit(candidate.deployment_id, own, lane)
        return None

    def settle(self, permit: JudgePermit, outcome: Outcome, now: float) -> None:
        """Take in how a call ended. Each permit is settled, or called malformed, or released, once."""
        if outcome.kind in _SILENT:
            self.release(permit)
            return
        candidate = self._known[permit.deployment_id]
        self._in_flight -= 1
        if outcome.succeeded:
            candidate.successes += 1
            candidate.breaker.succeed(permit.own, now)
            self._lane.succeed(permit.lane, now)
            return
        self._note(candidate, f"{outcome.kind.value}: {outcome.detail}", now)
        candidate.breaker.fail(permit.own, 1.0, now, self.rng)
        # However long the upstream itself wants to be left alone; never shorter than before.
        wait = min(_LONGEST_WAIT_S, outcome.bench_s)
        candidate.waits_until = max(candidate.waits_until, now + wait if wait > 0.0 else 0.0)
        if outcome.kind in _NOBODY_ANSWERED:
            self._lane.fail(permit.lane, 1.0, now, self.rng)
        elif outcome.kind is OutcomeKind.GATEWAY_DEFECT:
            self._lane.release(permit.lane)
        else:
            self._lane.succeed(permit.lane, now)

    def malformed(self, permit: JudgePermit, now: float) -> None:
        """Take in that an answer came in time and was no verdict."""
        candidate = self._known[permit.deployment_id]
        self._in_flight -= 1
        self._note(candidate, f"{MALFORMED}: the answer holds no verdict", now)
        candidate.breaker.fail(permit.own, _MALFORMED_WEIGHT, now, self.rng)
        self._lane.succeed(permit.lane, now)

    def release(self, permit: JudgePermit) -> None:
        """Take a permit back without a verdict on anybody: the client left."""
        self._in_flight -= 1
        self._known[permit.deployment_id].breaker.release(permit.own)
        self._lane.release(permit.lane)

    def view(self, now: float) -> LaneView:
        """Return the lane as it is now."""
        return LaneView(
            breaker=self._lane.state(now),
            breaker_until=self._lane.open_until,
            in_flight=self._in_flight,
            candidates=tuple(
                CandidateView(
                    deployment_id=one.deployment_id,
                    breaker=one.breaker.state(now),
                    breaker_until=one.breaker.open_until,
                    waits_until=one.waits_until if now < one.waits_until else None,
                    calls=one.calls,
                    successes=one.successes,
                    last_error=one.last_error,
                    last_error_at=one.last_error_at,
                )
                for one in self._known.values()
            ),
        )

    def _settings(self, consecutive: float) -> BreakerSettings:
        return BreakerSettings(
            consecutive=consecutive,
            open_s=self.open_s,
            cap_s=max(_CAP_S, self.open_s),
            # A call ends by its timeout; a probe that has not reported long after that never will.
            probe_lease_s=2.0 * self.timeout_s + 1.0,
        )

    @staticmethod
    def _note(candidate: _Candidate, text: str, now: float) -> None:
        candidate.last_error = text[:_ERROR_TEXT]
        candidate.last_error_at = now
