"""One try at one candidate, as a value.

What came of it is an :class:`~router.health.outcome.Outcome`; acting is the dispatcher's.
"""

from __future__ import annotations

from dataclasses import dataclass

from router.health.outcome import Outcome

__all__ = ["Attempt"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A finished try. Times are seconds: ``started_at`` on the wall clock, the others durations."""

    number: int
    deployment_id: str
    started_at: float
    duration_s: float
    outcome: Outcome
    ttft_s: float | None = None
    committed: bool = False
