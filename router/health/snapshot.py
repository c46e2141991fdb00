"""How every deployment goes at one moment, as a value that routing can decide from.

Knows no clock: ``taken_at`` was handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["BreakerState", "DeploymentHealth", "HealthSnapshot"]


class BreakerState(StrEnum):
    """The three states of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class DeploymentHealth:
    """One deployment's health. Times are wall-clock seconds; ``None`` means not known, never zero.

    ``bench_until`` and ``bench_reason`` say until when and why it is left out; ``health`` is the EWMA of
    successes in 0..1, decayed toward its prior.
    """

    configured: bool
    breaker: BreakerState = BreakerState.CLOSED
    breaker_until: float | None = None
    bench_until: float | None = None
    bench_reason: str | None = None
    health: float = 0.8
    ttft_s: float | None = None
    tokens_per_s: float | None = None
    tokens_per_character: float | None = None
    in_flight: int = 0
    ready: bool = True
    successes: int = 0
    failures: int = 0
    last_error: str | None = None
    last_error_at: float | None = None
    unconfigured_reason: str | None = None
    expected_wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """All deployments' health at ``taken_at`` (wall-clock seconds), by deployment id."""

    taken_at: float
    deployments: Mapping[str, DeploymentHealth]
