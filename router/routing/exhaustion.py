"""When nobody is left to ask: the status that is true, the time of the soonest return, the trail.

Pure. The ladder, first match wins; what is lasting (switched off, lacks a capability, too small) only
counts where nothing else kept anybody out. Never 500:

====  ================================  ==========================================================
400   as the upstream said              the last one asked refused the request as such
502   upstream_credentials_exhausted    every key is refused, without balance or without permission
400   context_length_exceeded           too long for every window (agents compact on this code)
400   content_filtered                  everybody asked refused the content
404   model_not_found                   nobody has the model any more
400   unsupported_capability            nobody can do what the request needs
429   all_rate_limited                  everybody is benched for a limit; ``Retry-After``
503   not_configured                    no provider of these candidates has a key
503   all_unavailable                   anything else; ``Retry-After`` where a return is known
====  ================================  ==========================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from router.errors import Exhausted
from router.health.outcome import Outcome, OutcomeKind
from router.routing.candidate import Exclusion, ExclusionReason, RoutingDecision

__all__ = ["AttemptLike", "exhausted"]


class AttemptLike(Protocol):
    """An attempt, read by shape: this layer lies below the one that makes them."""

    @property
    def deployment_id(self) -> str:
        """Who was asked."""

    @property
    def outcome(self) -> Outcome:
        """What came of it."""


_CREDENTIALS = frozenset({OutcomeKind.BAD_CREDENTIALS, OutcomeKind.NO_BALANCE, OutcomeKind.NOT_PERMITTED})
_LIMITS = frozenset({OutcomeKind.RATE_LIMITED, OutcomeKind.QUOTA_EXHAUSTED})
_REQUEST_ENDINGS = frozenset(
    {OutcomeKind.BAD_REQUEST, OutcomeKind.CONTEXT_TOO_LONG, OutcomeKind.CONTENT_FILTERED}
)
_TOO_LONG = frozenset(
    {
        ExclusionReason.CONTEXT_TOO_SMALL,
        ExclusionReason.PROMPT_TOO_LONG,
        ExclusionReason.OUTPUT_TOO_LONG,
    }
)
_INCAPABLE = frozenset(reason for reason in ExclusionReason if reason.value.startswith("lacks_"))
_PASSING = frozenset({ExclusionReason.BENCHED, ExclusionReason.BREAKER_OPEN, ExclusionReason.NOT_READY})
# Asking again before a second has passed is no use to anybody.
_LEAST_RETRY_AFTER_S = 1.0


class _Rung(NamedTuple):
    status: int
    code: str
    message: str


_CONTEXT = _Rung(400, "context_length_exceeded", "the request is longer than every candidate's window")

# What everybody's ending may be, what one of them must be, and the rung that is then true.
_RUNGS: tuple[tuple[frozenset[OutcomeKind], frozenset[OutcomeKind], _Rung], ...] = (
    (
        _CREDENTIALS,
        _CREDENTIALS,
        _Rung(
            502,
            "upstream_credentials_exhausted",
            "every upstream key is refused, without balance or without permission; your own key is fine",
        ),
    ),
    (
        _CREDENTIALS | {OutcomeKind.CONTEXT_TOO_LONG, OutcomeKind.MODEL_NOT_FOUND},
        frozenset({OutcomeKind.CONTEXT_TOO_LONG}),
        _CONTEXT,
    ),
    (
        frozenset({OutcomeKind.CONTENT_FILTERED}),
        frozenset({OutcomeKind.CONTENT_FILTERED}),
        _Rung(400, "content_filtered", "every candidate asked refused the content"),
    ),
    (
        frozenset({OutcomeKind.MODEL_NOT_FOUND}),
        frozenset({OutcomeKind.MODEL_NOT_FOUND}),
        _Rung(404, "model_not_found", "no upstream has the model any more"),
    ),
    (
        _REQUEST_ENDINGS,
        frozenset({OutcomeKind.BAD_REQUEST}),
        _Rung(400, "invalid_request", "every candidate asked refused the request as written"),
    ),
    (
        _LIMITS | _CREDENTIALS | _REQUEST_ENDINGS | {OutcomeKind.MODEL_NOT_FOUND},
        _LIMITS,
        _Rung(429, "all_rate_limited", "every candidate is at its limit"),
    ),
)


def exhausted(decision: RoutingDecision, attempts_outcomes: Sequence[AttemptLike], now: float) -> Exhausted:
    """Return the error for a request that nobody could serve.

    ``attempts_outcomes`` are the attempts that were made, in order; ``now`` is wall-clock seconds.
    ``retry_after_s`` is in whole seconds, rounded up, and only set for 429 and 503.
    """
    outcomes = {attempt.deployment_id: attempt.outcome for attempt in attempts_outcomes}
    rung = _refused_as_such(decision, attempts_outcomes) or _ladder(decision, outcomes)
    retry_after = _soonest(decision.exclusions, outcomes, now) if rung.status in {429, 503} else None
    if rung.status == 429 and retry_after is None:  # noqa: PLR2004 - the HTTP status
        retry_after = _LEAST_RETRY_AFTER_S
    tried = f"{len(attempts_outcomes)} tried, {len(decision.exclusions)} left out"
    when = f"; soonest return in {retry_after:.0f} s" if retry_after is not None else ""
    return Exhausted(
        f"{rung.message} ({decision.entrypoint}: {tried}{when})",
        exhausted_status=rung.status,
        exhausted_code=rung.code,
        trail=_trail(decision, attempts_outcomes),
        retry_after_s=retry_after,
    )


def _refused_as_such(decision: RoutingDecision, attempts: Sequence[AttemptLike]) -> _Rung | None:
    """Return the rung of a request whose last asking ended in a refusal of what it says."""
    if not attempts:
        return None
    outcome = attempts[-1].outcome
    if outcome.kind is OutcomeKind.BAD_REQUEST:
        return _Rung(400, "invalid_request", f"the upstream refused the request: {outcome.detail}")
    if outcome.kind is OutcomeKind.CONTENT_FILTERED:
        return _Rung(400, "content_filtered", f"the content was refused: {outcome.detail}")
    held_back = any(entry.reason in _PASSING for entry in decision.exclusions)
    # Whoever was not asked after it has no larger window; one who is only held back may have.
    return _CONTEXT if outcome.kind is OutcomeKind.CONTEXT_TOO_LONG and not held_back else None


def _ladder(decision: RoutingDecision, outcomes: dict[str, Outcome]) -> _Rung:
    passing = [entry for entry in decision.exclusions if entry.reason in _PASSING]
    kinds = {outcome.kind for outcome in outcomes.values()}
    kinds.update(entry.bench_kind or OutcomeKind.UPSTREAM_FAILURE for entry in passing)
    # A candidate that was never asked (its permit was refused) is held back like an open breaker.
    if any(entry.deployment_id not in outcomes for entry in decision.candidates):
        kinds.add(OutcomeKind.UPSTREAM_FAILURE)
    if not kinds:
        return _from_reasons({entry.reason for entry in decision.exclusions})
    for allowed, required, rung in _RUNGS:
        if kinds <= allowed and kinds & required:
            return rung
    return _Rung(503, "all_unavailable", "no candidate could serve the request")


def _from_reasons(reasons: set[ExclusionReason]) -> _Rung:
    if reasons & _TOO_LONG:
        return _CONTEXT
    if reasons & _INCAPABLE:
        lacking = ", ".join(sorted(reason.value.removeprefix("lacks_") for reason in reasons & _INCAPABLE))
        return _Rung(400, "unsupported_capability", f"no candidate can do what the request needs: {lacking}")
    if reasons & {ExclusionReason.PRICE_CAP, ExclusionReason.DATA_POLICY}:
        return _Rung(503, "forbidden_by_policy", "the price cap or the data policy leaves no candidate")
    if ExclusionReason.UNCONFIGURED in reasons:
        return _Rung(503, "not_configured", "no provider of these candidates has a key")
    return _Rung(503, "all_unavailable", "no candidate is switched on")


def _soonest(exclusions: Iterable[Exclusion], outcomes: dict[str, Outcome], now: float) -> float | None:
    """Return whole seconds until the first one returns, at least one; ``None`` where none is known."""
    waits = [
        entry.until - now for entry in exclusions if entry.until is not None and entry.reason in _PASSING
    ]
    waits += [outcome.bench_s for outcome in outcomes.values() if outcome.bench_s > 0]
    waits += [one.retry_after_s for one in outcomes.values() if one.retry_after_s is not None]
    return float(math.ceil(max(_LEAST_RETRY_AFTER_S, min(waits)))) if waits else None


def _trail(decision: RoutingDecision, attempts: Sequence[AttemptLike]) -> tuple[str, ...]:
    """Return a line for each candidate: those asked, those not reached, those left out."""
    lines: list[str] = []
    asked: set[str] = set()
    for attempt in attempts:
        outcome = attempt.outcome
        asked.add(attempt.deployment_id)
        status = f" (status {outcome.http_status})" if outcome.http_status is not None else ""
        lines.append(f"{attempt.deployment_id}: tried, {outcome.kind.value}{status}: {outcome.detail}")
    lines += [
        f"{entry.deployment_id}: not asked, it gave no permit or the attempts were used up"
        for entry in decision.candidates
        if entry.deployment_id not in asked
    ]
    lines += [
        f"{entry.deployment_id}: left out, {entry.reason.value}: {entry.detail}"
        for entry in decision.exclusions
    ]
    return tuple(lines)
