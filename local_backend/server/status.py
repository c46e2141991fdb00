"""What the engine says of itself: ``/health``, ``/v1/models`` and ``/metrics``. Knows no requests' text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import orjson
from fastapi import APIRouter, Depends
from fastapi.responses import Response

from local_backend.engine.scheduler import Progress
from local_backend.errors import EngineError
from local_backend.server.service import Service
from local_backend.server.worker import Phase

__all__ = ["status_routes"]

_OK = 200
_UNAVAILABLE = 503


def status_routes(service: Service) -> APIRouter:
    """Build the routes; ``/health`` alone is open to anyone."""
    routes = APIRouter()
    guarded = [Depends(service.authorise)]

    @routes.get("/health")
    async def health() -> Response:
        """Say whether requests can be answered, and how busy the slot is."""
        body = _health(service)
        headers: dict[str, str] = {}
        if service.worker.status.phase is Phase.LOADING:
            headers["Retry-After"] = str(math.ceil(service.worker.loading_left_s()))
        status = _OK if service.worker.status.phase is Phase.READY else _UNAVAILABLE
        return _json(body, status, headers)

    @routes.get("/v1/models", dependencies=guarded)
    async def models() -> Response:
        """List the one model; its context is known once it is loaded."""
        return _json({"object": "list", "data": [_model(service)]})

    @routes.get("/metrics", dependencies=guarded)
    async def metrics() -> Response:
        """Figures in the Prometheus text format."""
        return Response(_metrics(service), media_type="text/plain; version=0.0.4")

    return routes


def _health(service: Service) -> dict[str, Any]:
    worker = service.worker
    status = worker.status
    return {
        "status": status.phase,
        "progress": round(status.progress, 3),
        "error": status.error,
        "model": _model(service),
        "slots": {"total": 1, "busy": min(1, worker.open_requests)},
        "queue": {"waiting": max(0, worker.open_requests - 1), "limit": worker.queue_limit},
        "running": _running(status.ahead),
        "estimated_wait_s": round(worker.wait_estimate_s(), 3),
        "prefill_tok_s": round(status.speed.prefill, 2),
        "decode_tok_s": round(status.speed.decode, 2),
    }


def _running(ahead: tuple[Progress, ...]) -> dict[str, int] | None:
    """How far the request in the slot is, in tokens; cached ones count as computed."""
    if not ahead:
        return None
    first = ahead[0]
    return {
        "prompt_tokens": first.prompt_tokens,
        "computed": first.computed,
        "remaining": first.remaining,
    }


def _model(service: Service) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": service.model_name,
        "object": "model",
        "created": service.created,
        "owned_by": "local",
    }
    try:
        model = service.worker.model()
    except EngineError:
        return body
    return body | {
        "context_length": model.engine.context_tokens,
        "architecture": model.architecture,
        "kernels": model.kernels,
    }


def _metrics(service: Service) -> str:
    worker, counters = service.worker, service.counters
    status = worker.status
    prefix = "roundhouse_engine"
    lines: list[str] = []

    def family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# HELP {prefix}_{name} {text}")
        lines.append(f"# TYPE {prefix}_{name} {kind}")
        lines.extend(f"{prefix}_{name}{labels} {value:.12g}" for labels, value in samples)

    family("ready", "gauge", "1 while requests can be answered", [("", status.phase is Phase.READY)])
    family("load_progress", "gauge", "share of the model that is loaded", [("", status.progress)])
    family("slots_busy", "gauge", "slots in use", [("", min(1, worker.open_requests))])
    family("queue_waiting", "gauge", "requests that wait", [("", max(0, worker.open_requests - 1))])
    family("queue_limit", "gauge", "requests that may wait", [("", worker.queue_limit)])
    family(
        "requests_total",
        "counter",
        "requests by surface and how they ended",
        [
            (f'{{surface="{surface}",outcome="{outcome}"}}', count)
            for (surface, outcome), count in sorted(counters.requests.items())
        ],
    )
    family("prompt_tokens_total", "counter", "tokens of finished prompts", [("", counters.prompt_tokens)])
    family(
        "cached_tokens_total",
        "counter",
        "prompt tokens reused from the cache",
        [("", counters.cached_tokens)],
    )
    family("completion_tokens_total", "counter", "tokens answered", [("", counters.completion_tokens)])
    family("prefill_tokens_total", "counter", "prompt tokens computed", [("", status.prefill_tokens)])
    family("prefill_seconds_total", "counter", "seconds of prefill", [("", status.prefill_seconds)])
    family("decode_tokens_total", "counter", "tokens decoded", [("", status.decode_tokens)])
    family("decode_seconds_total", "counter", "seconds of decode", [("", status.decode_seconds)])
    return "\n".join(lines) + "\n"


def _json(body: dict[str, Any], status: int = _OK, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status, headers or {}, media_type="application/json")
