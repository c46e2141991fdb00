"""What every route needs, built once by the composition root. Knows no routes."""

from __future__ import annotations

import hmac
import logging
import time
from collections import Counter
from dataclasses import dataclass, field

from fastapi import Request

from local_backend.config import ServerConfig
from local_backend.engine.events import Usage
from local_backend.errors import Unauthorised
from local_backend.server.worker import EngineWorker

__all__ = ["Counters", "Service"]

_log = logging.getLogger(__name__)


class Counters:
    """Totals since the start; owned by the event loop."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0

    def ended(self, surface: str, outcome: str) -> None:
        """Count one request by its surface and how it ended: a finish reason or an error's code."""
        self.requests[surface, outcome] += 1
        _log.info("%s request ended: %s", surface, outcome)

    def used(self, usage: Usage) -> None:
        """Add a finished request's tokens."""
        _log.info(
            "%d tokens of prompt (%d from the cache), %d answered",
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
        )
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.completion_tokens += usage.completion_tokens


@dataclass(frozen=True, slots=True)
class Service:
    """The worker, the configuration, the public name of the model, and the totals."""

    worker: EngineWorker
    config: ServerConfig
    model_name: str
    counters: Counters = field(default_factory=Counters)
    created: int = field(default_factory=lambda: int(time.time()))

    async def authorise(self, request: Request) -> None:
        """Refuse a request without the configured token; a dependency of every guarded route."""
        if self.config.token is None:
            return
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        expected = self.config.token.encode()
        # Compared even when the scheme is wrong, so that time tells nothing.
        matches = hmac.compare_digest(shown.strip().encode(), expected)
        if scheme.lower() != "bearer" or not matches:
            raise Unauthorised("the bearer token is missing or wrong")
