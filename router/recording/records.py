"""What happened to one request, as a frozen value; one row in storage.

Holds no prompt and no answer text.
"""

from __future__ import annotations

from dataclasses import dataclass

from router.chat.types import Usage
from router.dispatch.attempt import Attempt
from router.routing.candidate import RoutingDecision

__all__ = ["RequestRecord"]


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """The whole story of one request. Durations in seconds, cost in integer micro-dollars.

    ``status`` is the HTTP status the client got (499: it left). ``decision`` is ``None`` where the
    request failed before one was made.
    """

    request_id: str
    received_at: float
    surface: str
    requested_model: str
    stream: bool
    status: int
    error_code: str | None
    deployment_id: str | None
    attempts: tuple[Attempt, ...]
    decision: RoutingDecision | None
    usage: Usage | None
    cost_micros: int | None
    ttft_s: float | None
    duration_s: float
    catalog_version: str
