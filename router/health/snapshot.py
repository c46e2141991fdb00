"""How every deployment goes at one moment, as a value that routing can decide from.

Knows no clock: ``taken_at`` was handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from router.health.outcome import OutcomeKind

__all__ = [
    "BreakerState",
    "DeploymentHealth",
    "HealthSnapshot",
    "ProviderCondition",
    "ProviderStatusLike",
]


class ProviderStatusLike(Protocol):
    """What a provider says of itself, read by shape: this layer knows no provider."""

    @property
    def configured(self) -> bool:
        """Whether it has what it needs to be asked (a key, an address)."""

    @property
    def ready(self) -> bool:
        """Whether it can be asked now."""

    @property
    def detail(self) -> str:
        """Why not, for a person."""

    @property
    def expected_wait_s(self) -> float:
        """Seconds a request would wait in its queue."""


@dataclass(frozen=True, slots=True)
class ProviderCondition:
    """The plainest :class:`ProviderStatusLike`."""

    configured: bool = True
    ready: bool = True
    detail: str = ""
    expected_wait_s: float = 0.0


class BreakerState(StrEnum):
    """The three states of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class DeploymentHealth:
    """One deployment's health. Times are wall-clock seconds; ``None`` means not known, never zero.

    ``bench_until`` and ``bench_reason`` say until when and why it is left out; ``health`` is the EWMA of
    successes in 0..1, decayed toward its prior. ``bench_kind`` is the outcome that benched it.

    ``probing``: the one probe is under way, so everybody else waits for its result. ``ramp`` grows from
    0.1 to 1 while a breaker has just closed. ``penalty_s`` is what recent failures add to the expected
    time. ``ttft_by_size_s`` holds the time to first token per prompt-size bucket of
    :mod:`router.health.averages`. ``learned_context_tokens`` is a window the upstream itself named.
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
    bench_kind: OutcomeKind | None = None
    probing: bool = False
    ramp: float = 1.0
    penalty_s: float = 0.0
    ttft_by_size_s: tuple[float | None, ...] = ()
    learned_context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """All deployments' health at ``taken_at`` (wall-clock seconds), by deployment id."""

    taken_at: float
    deployments: Mapping[str, DeploymentHealth]
