"""What an outcome does to the state: breakers move, benches begin and end, averages learn.

The one place where a classified outcome is turned into consequences. Knows no permits' bookkeeping and
no snapshots; ``now`` is wall-clock seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from router.health.bench import BenchBook, BenchKey
from router.health.breaker import Breaker, BreakerPermit
from router.health.classify import classify_for_local
from router.health.incidents import Incident, IncidentLog
from router.health.jitter import Randomness
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.health.record import DeploymentRecord, bench_keys, label_bench_keys

__all__ = ["OpenPermit", "Permit", "Settlement"]

# Endings that say nothing about anybody but the client or the gateway.
_SILENT = frozenset({OutcomeKind.CLIENT_LEFT, OutcomeKind.GATEWAY_DEFECT})
# Endings without a status in which the provider did answer.
_ANSWERED = frozenset({OutcomeKind.BROKEN_STREAM, OutcomeKind.EMPTY_ANSWER})
# Refusals that come fast: they must not look like speed.
_REFUSALS = frozenset({OutcomeKind.RATE_LIMITED, OutcomeKind.SLOT_BUSY})

_LEARNED_CONTEXT_S = 86_400.0
_ERROR_TEXT = 300


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave to ask one deployment once, with the label of the key to use (``""``: any)."""

    number: int
    deployment_id: str
    provider: str
    key_label: str
    probe: bool
    last_resort: bool
    acquired_at: float
    prompt_tokens: int


@dataclass(slots=True)
class OpenPermit:
    """A permit that is out, with what it holds of breakers and benches."""

    permit: Permit
    record: DeploymentRecord
    provider_breaker: Breaker
    own: BreakerPermit
    above: BreakerPermit
    bench_probes: tuple[BenchKey, ...]
    first_event_seen: bool = False


class Settlement:
    """Applies outcomes to the benches, breakers and averages that the tracker owns."""

    def __init__(self, book: BenchBook, incidents: IncidentLog, rng: Randomness) -> None:
        self._book = book
        self._incidents = incidents
        self._rng = rng

    def apply(self, entry: OpenPermit, outcome: Outcome, now: float) -> None:
        """Apply the one outcome of a permit."""
        if entry.record.provider.local:
            outcome = classify_for_local(outcome)
        spilled = outcome.kind is OutcomeKind.SLOT_BUSY and outcome.bench_s <= 0.0
        if spilled or outcome.kind in _SILENT:
            # One that was sent elsewhere rather than let wait has not failed either.
            self.release(entry)
        elif outcome.succeeded:
            self._succeed(entry, outcome, now)
        else:
            self._fail(entry, outcome, now)

    def release(self, entry: OpenPermit) -> None:
        """Free what a permit holds, without a verdict about anybody."""
        entry.record.breaker.release(entry.own)
        entry.provider_breaker.release(entry.above)
        for key in entry.bench_probes:
            self._book.release_probe(key, entry.permit.number)

    def first_event(self, entry: OpenPermit, ttft_s: float, now: float) -> None:
        """Apply the first content of an answer: a probe has proved its point, long before the end."""
        if entry.first_event_seen:
            return
        entry.first_event_seen = True
        record = entry.record
        record.averages.observe_ttft(ttft_s, entry.permit.prompt_tokens, now)
        self._end_benches(entry, now)
        # What still comes of this request belongs to the state that its first content led to.
        if (entry.own.probe or entry.own.last_resort) and record.breaker.succeed(entry.own, now):
            self._note(record, now, "breaker closed", "a probe's answer began")
            entry.own = record.breaker.admit(now) or entry.own
        providers = entry.provider_breaker
        if (entry.above.probe or entry.above.last_resort) and providers.succeed(entry.above, now):
            self._note(record, now, "provider breaker closed", "a probe's answer began")
            entry.above = providers.admit(now) or entry.above

    def _succeed(self, entry: OpenPermit, outcome: Outcome, now: float) -> None:
        record, averages = entry.record, entry.record.averages
        record.successes += 1
        averages.health.observe(1.0, now)
        if outcome.ttft_s is not None and not entry.first_event_seen:
            averages.observe_ttft(outcome.ttft_s, entry.permit.prompt_tokens, now)
        if outcome.tokens_per_s is not None:
            averages.observe_speed(outcome.tokens_per_s, now)
        self._end_benches(entry, now)
        if record.breaker.succeed(entry.own, now):
            self._note(record, now, "breaker closed", "a probe was answered")
        if entry.provider_breaker.succeed(entry.above, now):
            self._note(record, now, "provider breaker closed", "a probe was answered")

    def _fail(self, entry: OpenPermit, outcome: Outcome, now: float) -> None:
        record, weight = entry.record, outcome.breaker_weight
        record.failures += 1
        record.last_error = f"{outcome.kind.value}: {outcome.detail}"[:_ERROR_TEXT]
        record.last_error_at = now
        if weight > 0.0:
            record.averages.health.observe(1.0 - weight, now)
        record.averages.penalty.add(1.0 if outcome.kind in _REFUSALS else weight, now)
        if outcome.learned_context_tokens is not None:
            record.learned_context_tokens = outcome.learned_context_tokens
            record.learned_until = now + _LEARNED_CONTEXT_S
        self._move_breakers(entry, outcome, now)
        for key in entry.bench_probes:
            self._book.release_probe(key, entry.permit.number)
        if outcome.bench_s > 0.0 and outcome.scope not in {Scope.NONE, Scope.REQUEST}:
            self._bench(entry, outcome, now)

    def _bench(self, entry: OpenPermit, outcome: Outcome, now: float) -> None:
        record = entry.record
        keys = (*bench_keys(record), *label_bench_keys(record, entry.permit.key_label))
        key = next(key for key in keys if key.scope is outcome.scope)
        before = self._book.find(key, now)
        bench = self._book.strike(key, outcome, entry.permit.acquired_at, now)
        if before is None or bench.until > before.until:
            self._note(record, now, f"benched ({outcome.kind.value}): {key}", bench.reason, bench.until)

    def _move_breakers(self, entry: OpenPermit, outcome: Outcome, now: float) -> None:
        record, weight = entry.record, outcome.breaker_weight
        why = record.last_error or outcome.kind.value
        if weight <= 0.0:
            record.breaker.release(entry.own)
        elif record.breaker.fail(entry.own, weight, now, self._rng):
            self._note(record, now, "breaker opened", why, record.breaker.open_until)
        providers = entry.provider_breaker
        if outcome.scope is Scope.PROVIDER and weight > 0.0:
            if providers.fail(entry.above, weight, now, self._rng):
                self._note(record, now, "provider breaker opened", why, providers.open_until)
        elif outcome.http_status is not None or outcome.kind in _ANSWERED:
            providers.succeed(entry.above, now)
        else:
            providers.release(entry.above)

    def _end_benches(self, entry: OpenPermit, now: float) -> None:
        if not len(self._book):
            return
        for key in (*bench_keys(entry.record), *label_bench_keys(entry.record, entry.permit.key_label)):
            if self._book.succeed(key, entry.permit.acquired_at, now):
                self._note(entry.record, now, f"bench over: {key}", "it was answered")

    def _note(
        self, record: DeploymentRecord, now: float, what: str, why: str, until: float | None = None
    ) -> None:
        self._incidents.note(
            Incident(now, record.deployment.id, record.provider.name, what, why[:_ERROR_TEXT], until)
        )
