"""Every Prometheus name in one place, with labels whose values come from the catalog only.

Knows no HTTP: :meth:`Metrics.render` returns text. A model's name that a client made up is never a
label; it counts as ``unknown``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.health.snapshot import BreakerState, HealthSnapshot
from router.recording.recorder import RecorderStatus
from router.recording.records import RequestRecord

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_BREAKER_LEVEL = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class Metrics:
    """Counters of one gateway, in a registry of its own."""

    def __init__(self, entrypoints: Iterable[str], deployments: Iterable[str]) -> None:
        self._entrypoints = frozenset(entrypoints)
        self._deployments = frozenset(deployments)
        self._registry = CollectorRegistry(auto_describe=False)
        own = self._registry
        self._requests = Counter(
            "roundhouse_requests", "Requests answered.", ("entrypoint", "status"), registry=own
        )
        self._duration = Histogram(
            "roundhouse_request_seconds", "Whole answers.", ("entrypoint",), buckets=_SECONDS, registry=own
        )
        self._ttft = Histogram(
            "roundhouse_time_to_first_token_seconds",
            "From receiving a request to its first semantic event.",
            ("entrypoint",),
            buckets=_SECONDS,
            registry=own,
        )
        self._attempts = Counter(
            "roundhouse_attempts", "Tries at candidates.", ("candidate", "outcome"), registry=own
        )
        self._tokens = Counter("roundhouse_tokens", "Tokens processed.", ("candidate", "kind"), registry=own)
        self._cost = Counter("roundhouse_cost_micro_dollars", "Money spent.", ("candidate",), registry=own)

    def observe(self, record: RequestRecord) -> None:
        """Count one finished request."""
        entrypoint = self._entrypoint_label(record)
        self._requests.labels(entrypoint, str(record.status)).inc()
        self._duration.labels(entrypoint).observe(record.duration_s)
        if record.ttft_s is not None:
            self._ttft.labels(entrypoint).observe(record.ttft_s)
        for attempt in record.attempts:
            self._attempts.labels(attempt.deployment_id, attempt.outcome.kind.value).inc()
        if record.deployment_id is None:
            return
        if record.usage is not None:
            self._tokens.labels(record.deployment_id, "prompt").inc(record.usage.prompt_tokens)
            self._tokens.labels(record.deployment_id, "completion").inc(record.usage.completion_tokens)
        if record.cost_micros:
            self._cost.labels(record.deployment_id).inc(record.cost_micros)

    def render(self, health: HealthSnapshot, recording: RecorderStatus) -> bytes:
        """Return everything in Prometheus' text format 0.0.4; the arguments are figures that others keep."""
        live = CollectorRegistry(auto_describe=False)
        live.register(_LiveFigures(health, recording))
        return generate_latest(self._registry) + generate_latest(live)

    def _entrypoint_label(self, record: RequestRecord) -> str:
        name = record.requested_model
        if name in self._entrypoints:
            return name
        return "pinned" if name in self._deployments else "unknown"


class _LiveFigures(Collector):
    """One moment's figures, as families."""

    def __init__(self, snapshot: HealthSnapshot, recording: RecorderStatus) -> None:
        self._snapshot = snapshot
        self._recording = recording

    def collect(self) -> Iterator[Metric]:
        """Yield the families; called by the registry."""
        health = GaugeMetricFamily("roundhouse_candidate_health", "EWMA of successes.", labels=("candidate",))
        breaker = GaugeMetricFamily(
            "roundhouse_candidate_breaker", "0 closed, 1 half-open, 2 open.", labels=("candidate",)
        )
        in_flight = GaugeMetricFamily("roundhouse_candidate_in_flight", "Attempts.", labels=("candidate",))
        for deployment_id, state in self._snapshot.deployments.items():
            if state.configured:
                health.add_metric((deployment_id,), state.health)
                breaker.add_metric((deployment_id,), _BREAKER_LEVEL[state.breaker])
                in_flight.add_metric((deployment_id,), state.in_flight)
        yield from (health, breaker, in_flight)
        known = self._recording
        yield CounterMetricFamily("roundhouse_records_written", "Requests recorded.", value=known.written)
        yield CounterMetricFamily("roundhouse_records_lost", "Requests not recorded.", value=known.lost)
        yield GaugeMetricFamily("roundhouse_records_waiting", "Requests to record.", value=known.waiting)
