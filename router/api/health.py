"""``/health/*`` and ``/metrics``: for machines that watch, and for the keeper's dashboard.

Cheap on purpose: no database and no upstream is asked. Knows no wire of chats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import orjson
from fastapi import APIRouter, Response

from router import __version__
from router.catalog.catalog import Catalog, Deployment, Entrypoint, ProviderKind
from router.clock import Clock
from router.gateway import Gateway
from router.health.incidents import Incident
from router.health.snapshot import BreakerState, DeploymentHealth
from router.health.tracker import HealthTracker
from router.judge.lane import JudgeStatus
from router.providers.base import LaneFigures, ProviderStatus
from router.recording.exposition import CONTENT_TYPE
from router.recording.metrics import Metrics
from router.recording.recorder import Recorder

__all__ = ["DASHBOARD_SCHEMA_VERSION", "build_health_routes", "state_of"]

# Raised when a field is renamed or removed; added fields leave it alone.
DASHBOARD_SCHEMA_VERSION = 1


def build_health_routes(
    *,
    gateway: Gateway,
    tracker: HealthTracker,
    statuses: Callable[[], Mapping[str, ProviderStatus]],
    recorder: Recorder,
    metrics: Metrics,
    clock: Clock,
    is_ready: Callable[[], bool],
) -> APIRouter:
    """Return the routes over the parts that they read."""
    routes = APIRouter(tags=["health"])
    started_at = clock.wall()

    @routes.head("/health/live", include_in_schema=False)
    @routes.get("/health/live")
    async def live() -> Response:
        """Say that the process answers."""
        return _json({"status": "live"})

    @routes.head("/health/ready", include_in_schema=False)
    @routes.get("/health/ready")
    async def ready() -> Response:
        """Say whether requests are taken, and how many candidates could serve one now."""
        if not is_ready():
            return _json({"status": "stopping"}, status=503)
        health = gateway.snapshot().deployments
        usable = sum(1 for state in health.values() if state_of(state) in {"healthy", "recovering"})
        return _json({"status": "ready", "version": __version__, "usable_candidates": usable})

    @routes.get("/health/dashboard")
    async def dashboard() -> Response:
        """Return everything that is known of everybody's health now."""
        now, catalog = clock.wall(), gateway.catalog
        health, told = gateway.snapshot().deployments, statuses()
        return _json(
            {
                "schema_version": DASHBOARD_SCHEMA_VERSION,
                "version": __version__,
                "taken_at": _time(now),
                "uptime_s": round(now - started_at, 1),
                "catalog_version": catalog.version,
                "entrypoints": [_entrypoint(one, health) for one in catalog.entrypoints.values()],
                "candidates": [
                    _candidate(one, catalog, health.get(one.id)) for one in catalog.deployments.values()
                ],
                "judge": _judge(gateway.judge.status()) if catalog.judge is not None else None,
                "engines": _engines(catalog, told),
                "recording": _recording(recorder),
                "incidents": [_incident(one) for one in tracker.incidents()],
            }
        )

    @routes.get("/metrics")
    async def prometheus() -> Response:
        """Return the metrics in Prometheus' text format."""
        text = metrics.render(gateway.snapshot(), recorder.status(), _lanes(statuses()))
        return Response(text, media_type=CONTENT_TYPE)

    return routes


def state_of(health: DeploymentHealth | None) -> str:
    """Name a candidate's state in one word: the strongest reason first."""
    if health is None or not health.configured:
        return "unconfigured"
    if not health.ready:
        return "not_ready"
    if health.bench_until is not None:
        return "benched"
    if health.breaker is BreakerState.OPEN:
        return "open"
    return "recovering" if health.breaker is BreakerState.HALF_OPEN else "healthy"


def _entrypoint(entrypoint: Entrypoint, health: Mapping[str, DeploymentHealth]) -> dict[str, object]:
    states = [state_of(health.get(name)) for name in entrypoint.candidates]
    return {
        "name": entrypoint.name,
        "description": entrypoint.description,
        "judged": entrypoint.judged,
        "candidates": list(entrypoint.candidates),
        "usable": sum(state in {"healthy", "recovering"} for state in states),
        "configured": sum(state != "unconfigured" for state in states),
    }


def _candidate(
    deployment: Deployment, catalog: Catalog, health: DeploymentHealth | None
) -> dict[str, object]:
    known = health or DeploymentHealth(configured=False)
    return {
        "id": deployment.id,
        "provider": deployment.provider,
        "upstream_model": deployment.upstream_model,
        "local": catalog.providers[deployment.provider].local,
        "enabled": deployment.enabled,
        "state": state_of(health) if deployment.enabled else "disabled",
        "unconfigured_reason": known.unconfigured_reason,
        "health": round(known.health, 4),
        "ttft_s": _rounded(known.ttft_s),
        "tokens_per_s": _rounded(known.tokens_per_s),
        "expected_wait_s": _rounded(known.expected_wait_s),
        "in_flight": known.in_flight,
        "successes": known.successes,
        "failures": known.failures,
        "breaker": {
            "state": known.breaker.value,
            "until": _time(known.breaker_until),
            "probing": known.probing,
        },
        "bench": {
            "until": _time(known.bench_until),
            "reason": known.bench_reason,
            "kind": known.bench_kind.value if known.bench_kind else None,
        },
        "last_error": known.last_error,
        "last_error_at": _time(known.last_error_at),
    }


def _judge(status: JudgeStatus) -> dict[str, object]:
    lane = status.lane
    return {
        "breaker": {"state": lane.breaker.value, "until": _time(lane.breaker_until)},
        "in_flight": lane.in_flight,
        "cached_verdicts": status.cached,
        "answered_from_cache": status.answered_from_cache,
        "decided_by_heuristic": status.heuristic,
        "left_out": dict(status.left_out),
        "candidates": [
            {
                "id": one.deployment_id,
                "usable": one.deployment_id in status.usable,
                "breaker": {"state": one.breaker.value, "until": _time(one.breaker_until)},
                "waits_until": _time(one.waits_until),
                "calls": one.calls,
                "successes": one.successes,
                "last_error": one.last_error,
                "last_error_at": _time(one.last_error_at),
            }
            for one in lane.candidates
        ],
    }


def _engines(catalog: Catalog, statuses: Mapping[str, ProviderStatus]) -> list[dict[str, object]]:
    engines = [one for one in catalog.providers.values() if one.kind is ProviderKind.ENGINE]
    return [
        {
            "provider": one.name,
            "model": one.engine.model if one.engine else None,
            "ready": status.ready,
            "detail": status.detail,
            "expected_wait_s": status.expected_wait_s,
            "lane": _lane(status.lane) if status.lane is not None else None,
        }
        for one in engines
        if (status := statuses.get(one.name)) is not None
    ]


def _lanes(statuses: Mapping[str, ProviderStatus]) -> dict[str, LaneFigures]:
    return {name: status.lane for name, status in statuses.items() if status.lane is not None}


def _lane(lane: LaneFigures) -> dict[str, object]:
    return {
        "slots": lane.slots,
        "running": lane.running,
        "waiting": lane.waiting,
        "queue_limit": lane.queue_limit,
        "prefill_tokens_per_s": _rounded(lane.prefill_tokens_per_s),
        "decode_tokens_per_s": _rounded(lane.decode_tokens_per_s),
        "typical_output_tokens": _rounded(lane.typical_output_tokens),
        "spilled": lane.spilled,
        "joined": lane.joined,
        "kept": lane.kept,
    }


def _recording(recorder: Recorder) -> dict[str, object]:
    status = recorder.status()
    return {
        "written": status.written,
        "lost": status.lost,
        "waiting": status.waiting,
        "degraded": status.degraded,
    }


def _incident(incident: Incident) -> dict[str, object]:
    return {
        "at": _time(incident.at),
        "candidate": incident.deployment_id,
        "provider": incident.provider,
        "what": incident.what,
        "why": incident.why,
        "until": _time(incident.until),
    }


def _json(value: object, *, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status_code=status, media_type="application/json")


def _time(seconds: float | None) -> str | None:
    """Write wall-clock seconds as RFC 3339."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
