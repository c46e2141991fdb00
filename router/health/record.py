"""Everything kept about one deployment, and how it is seen from outside.

Pure; the tracker owns the records and the book of benches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from router.catalog.catalog import Deployment, Provider
from router.health.averages import Averages
from router.health.bench import Bench, BenchBook, BenchKey
from router.health.breaker import Breaker
from router.health.outcome import Scope
from router.health.snapshot import BreakerState, DeploymentHealth, ProviderStatusLike

__all__ = ["DeploymentRecord", "KeyStanding", "bench_keys", "label_bench_keys", "see", "standing"]

# A view is good for this long while nothing happens: averages drift slowly.
_VIEW_GOOD_S = 0.25


@dataclass(slots=True)
class DeploymentRecord:
    """One deployment's state; mutable, owned by the tracker alone."""

    deployment: Deployment
    provider: Provider
    breaker: Breaker = field(default_factory=Breaker)
    averages: Averages = field(default_factory=Averages)
    in_flight: int = 0
    successes: int = 0
    failures: int = 0
    last_error: str | None = None
    last_error_at: float | None = None
    learned_context_tokens: int | None = None
    learned_until: float = 0.0
    view: DeploymentHealth | None = None
    view_until: float = 0.0
    view_epoch: int = -1

    def touch(self) -> None:
        """Say that the view is out of date."""
        self.view = None


@dataclass(frozen=True, slots=True)
class KeyStanding:
    """How a deployment stands with the benches: who may be used, and what keeps the rest out."""

    open_keys: tuple[str, ...]
    bench: Bench | None = None
    probing: bool = False
    probing_keys: tuple[str, ...] = ()


def bench_keys(record: DeploymentRecord) -> tuple[BenchKey, BenchKey, BenchKey]:
    """Return the keys of benches that keep the deployment out whatever key is used."""
    name, model = record.provider.name, record.deployment.upstream_model
    return (
        BenchKey(Scope.PROVIDER, name),
        BenchKey(Scope.MODEL, name, model=model),
        BenchKey(Scope.SLOT, name, model=model),
    )


def standing(record: DeploymentRecord, labels: Iterable[str], book: BenchBook, now: float) -> KeyStanding:
    """Work out which key labels may be used for the deployment at ``now``."""
    labels = tuple(labels)
    if not len(book):
        return KeyStanding(labels)
    wide = [bench for key in bench_keys(record) if (bench := book.find(key, now)) is not None]
    worst = max((bench for bench in wide if bench.active(now)), key=_until, default=None)
    probing = any(bench.probing(now) for bench in wide if not bench.active(now))
    open_keys: list[str] = []
    soonest: Bench | None = None
    probing_keys: list[str] = []
    for label in labels:
        benches = [b for key in label_bench_keys(record, label) if (b := book.find(key, now)) is not None]
        held = max((bench for bench in benches if bench.active(now)), key=_until, default=None)
        if held is not None:
            soonest = held if soonest is None or held.until < soonest.until else soonest
        elif any(bench.probing(now) for bench in benches):
            probing_keys.append(label)
        else:
            open_keys.append(label)
    if not open_keys and not probing_keys and soonest is not None:
        worst = soonest if worst is None or soonest.until > worst.until else worst
    return KeyStanding(
        open_keys=tuple(open_keys),
        bench=worst,
        probing=probing or bool(probing_keys and not open_keys),
        probing_keys=tuple(probing_keys),
    )


def label_bench_keys(record: DeploymentRecord, label: str) -> tuple[BenchKey, BenchKey]:
    """Return the keys of benches that keep one key's label out."""
    name = record.provider.name
    return (
        BenchKey(Scope.KEY, name, label),
        BenchKey(Scope.KEY_MODEL, name, label, record.deployment.upstream_model),
    )


def see(
    record: DeploymentRecord,
    status: ProviderStatusLike,
    labels: tuple[str, ...],
    keys_known: bool,
    book: BenchBook,
    provider_breaker: Breaker,
    now: float,
) -> DeploymentHealth:
    """Return the deployment's health as a value, and remember it in the record."""
    stands = standing(record, labels, book, now)
    breaker, averages = record.breaker, record.averages
    state, until = _combined(breaker, provider_breaker, now)
    without_key = keys_known and not labels and record.provider.needs_key
    reason = status.detail or None
    if without_key and status.configured:
        reason = f"none of {', '.join(record.provider.key_env) or 'its keys'} is set"
    deployment = record.deployment
    ttft = tuple(series.value(now, deployment.expected_ttft_s) for series in averages.ttft)
    measured = [value for value in ttft if value is not None]
    view = DeploymentHealth(
        configured=status.configured and not without_key,
        breaker=state,
        breaker_until=until,
        bench_until=stands.bench.until if stands.bench is not None else None,
        bench_reason=stands.bench.reason if stands.bench is not None else None,
        health=averages.health.value(now),
        ttft_s=sum(measured) / len(measured) if measured else None,
        tokens_per_s=averages.speed.value(now, deployment.expected_tokens_per_s),
        tokens_per_character=averages.tokens_per_character,
        in_flight=record.in_flight,
        ready=status.ready,
        successes=record.successes,
        failures=record.failures,
        last_error=record.last_error,
        last_error_at=record.last_error_at,
        unconfigured_reason=reason,
        expected_wait_s=status.expected_wait_s,
        bench_kind=stands.bench.kind if stands.bench is not None else None,
        probing=stands.probing or breaker.probing(now) or provider_breaker.probing(now),
        ramp=min(breaker.ramp(now), provider_breaker.ramp(now)),
        penalty_s=averages.penalty.value(now),
        ttft_by_size_s=ttft if measured else (),
        learned_context_tokens=record.learned_context_tokens if now < record.learned_until else None,
    )
    record.view = view
    record.view_until = min(
        now + _VIEW_GOOD_S,
        stands.bench.until if stands.bench is not None else math.inf,
        breaker.changes_at(now),
        provider_breaker.changes_at(now),
    )
    return view


def _combined(own: Breaker, providers: Breaker, now: float) -> tuple[BreakerState, float | None]:
    states = (own.state(now), providers.state(now))
    untils = [breaker.open_until for breaker in (own, providers) if breaker.open_until is not None]
    for state in (BreakerState.OPEN, BreakerState.HALF_OPEN):
        if state in states:
            return state, max(untils, default=None)
    return BreakerState.CLOSED, None


def _until(bench: Bench) -> float:
    return bench.until
