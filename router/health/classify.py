"""An attempt's ending to an outcome: the error taxonomy. Pure; never raises, whatever an error says.

Order of evidence: the error's own class, then typed codes, then the status with the vendor's sentence where
the status leaves the cause open, then the status alone. Who is to blame decides who is benched: a refused
key does not bench its model's other keys, a prompt that is too long benches nobody, a defect of ours benches
nobody.

Sentences are matched from their beginning only (:mod:`router.health.vendor_patterns`), and only in the
message fields of an error object: text that an upstream echoes from the prompt cannot change the class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from router.errors import (
    ClientDisconnected,
    ContextLengthExceeded,
    GatewayError,
    InvalidRequest,
    SlotBusy,
    StreamInterrupted,
    TimeoutPhase,
    UpstreamBrokenStream,
    UpstreamEmpty,
    UpstreamInBandError,
    UpstreamStatus,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from router.health.error_body import ErrorFields, read_error_body
from router.health.outcome import Outcome, OutcomeKind, Provenance, Scope
from router.health.rulings import RULINGS, RulingName
from router.health.stated import stated_wait, stated_window
from router.health.vendor_codes import CODES, STATUSES
from router.health.vendor_patterns import PATTERNS, WRAPPERS

__all__ = ["classify", "classify_for_local"]

_DETAIL = 300
_LOOK = 400
_MOST_WRAPPERS = 4
_LOCAL_BENCH_S = 5.0
_DAY_S, _HOUR_S = 86_400.0, 3_600.0
# Google's day ends at midnight in California; its own delay of some seconds does not mean the day.
_GOOGLE_RESET_HOUR_UTC = 8
_LEAST_DAILY_S = 60.0

# Google uses OpenAI's sentence about credits for every limit; its quotas' names say which one it is.
_GOOGLE_LIMIT = "resource_exhausted"
_DAILY_QUOTA_ID = re.compile(r"perday", re.IGNORECASE)


# Errors that are no answer of the upstream's: class, kind, scope, how much of a failure.
_CLASSES: tuple[tuple[type[GatewayError], OutcomeKind, Scope, float], ...] = (
    (UpstreamUnreachable, OutcomeKind.UNREACHABLE, Scope.PROVIDER, 1.0),
    (UpstreamTimeout, OutcomeKind.TIMED_OUT, Scope.MODEL, 0.5),
    (UpstreamBrokenStream, OutcomeKind.BROKEN_STREAM, Scope.MODEL, 1.0),
    (StreamInterrupted, OutcomeKind.BROKEN_STREAM, Scope.MODEL, 1.0),
    (UpstreamEmpty, OutcomeKind.EMPTY_ANSWER, Scope.MODEL, 0.5),
    (SlotBusy, OutcomeKind.SLOT_BUSY, Scope.SLOT, 0.0),
    (ClientDisconnected, OutcomeKind.CLIENT_LEFT, Scope.NONE, 0.0),
    (ContextLengthExceeded, OutcomeKind.CONTEXT_TOO_LONG, Scope.REQUEST, 0.0),
    (InvalidRequest, OutcomeKind.BAD_REQUEST, Scope.REQUEST, 0.0),
)


def classify(error: GatewayError | None, *, now: float, vendor: str = "", local: bool = False) -> Outcome:
    """Classify how an attempt ended; ``None`` is a success.

    ``now`` is wall-clock seconds. ``vendor`` may name whose sentences to try first, a key of
    :data:`~router.health.vendor_patterns.PATTERNS`. ``local`` marks an engine on this machine, whose being
    busy or slow is no quota of anybody's.
    """
    outcome = _by_class(error)
    if outcome is None and isinstance(error, UpstreamStatus | UpstreamInBandError):
        outcome = _by_answer(error, now, vendor)
    if outcome is None:
        text = "" if error is None else error.message
        outcome = Outcome(OutcomeKind.GATEWAY_DEFECT, Scope.NONE, text[:_DETAIL])
    return classify_for_local(outcome) if local else outcome


def classify_for_local(outcome: Outcome) -> Outcome:
    """Restate an outcome for an engine on this machine: busy, loading or slow is the slot's matter."""
    busy = outcome.kind in {OutcomeKind.RATE_LIMITED, OutcomeKind.QUOTA_EXHAUSTED} or (
        outcome.kind is OutcomeKind.UPSTREAM_FAILURE and outcome.http_status == 503  # noqa: PLR2004
    )
    if busy:
        wait = min(_LOCAL_BENCH_S, outcome.bench_s) or _LOCAL_BENCH_S
        return replace(
            outcome, kind=OutcomeKind.SLOT_BUSY, scope=Scope.SLOT, bench_s=wait, breaker_weight=0.0
        )
    if outcome.kind is OutcomeKind.TIMED_OUT:
        return replace(outcome, scope=Scope.SLOT, bench_s=_LOCAL_BENCH_S)
    if outcome.scope in {Scope.KEY, Scope.KEY_MODEL, Scope.MODEL} and outcome.bench_s > 0.0:
        return replace(outcome, bench_s=min(outcome.bench_s, 60.0))
    return outcome


def _by_class(error: GatewayError | None) -> Outcome | None:
    """Return the outcome of what is not an answer by the upstream; ``None`` where it is one."""
    if error is None:
        return Outcome(OutcomeKind.SUCCESS, Scope.NONE, try_next=False)
    text = error.message[:_DETAIL]
    if isinstance(error, UpstreamTimeout) and error.phase is TimeoutPhase.CONNECT:
        return Outcome(OutcomeKind.TIMED_OUT, Scope.PROVIDER, text, breaker_weight=1.0)
    for kind_of_error, kind, scope, weight in _CLASSES:
        if isinstance(error, kind_of_error):
            goes_on = not isinstance(error, StreamInterrupted | ClientDisconnected)
            wait = error.retry_after_s if kind is OutcomeKind.SLOT_BUSY else None
            return Outcome(kind, scope, text, breaker_weight=weight, try_next=goes_on, retry_after_s=wait)
    return None


def _by_answer(error: UpstreamStatus | UpstreamInBandError, now: float, vendor: str) -> Outcome:
    given = tuple(word.casefold() for word in (error.upstream_code, error.upstream_type) if word)
    said = ErrorFields(message=error.message, codes=given, status=error.upstream_status)
    bodies = read_error_body(error.body_excerpt) if isinstance(error, UpstreamStatus) else ()
    if not bodies and said.message.lstrip().startswith("{"):
        bodies = read_error_body(said.message)
    # An outer gateway's status may stand for its upstream's error: the innermost that says something counts.
    objects = (*bodies, said)
    status = error.upstream_status or next((one.status for one in objects if one.status), None)
    name, told_by = _ruling(objects, status, vendor)
    stated = error.retry_after_s
    if stated is None:
        stated = stated_wait(objects, told_by, now)
    return _outcome(name, told_by, status, stated, now)


def _ruling(
    objects: tuple[ErrorFields, ...], status: int | None, vendor: str
) -> tuple[RulingName, ErrorFields]:
    for fields in objects:
        name = _by_code(fields, fields.status or status)
        sentence = _by_sentence(fields.message, fields.status or status, vendor)
        # A code for any limit says less than a sentence that names the day, the balance or the length.
        open_cause = name is RulingName.RATE_LIMITED and _GOOGLE_LIMIT not in fields.codes
        if name is not None and not (open_cause and sentence is not None):
            return _daily(name, fields), fields
        if sentence is not None:
            return _daily(sentence, fields), fields
    nested = next((fields.status for fields in objects[1:-1] if fields.status), None)
    effective = nested or status
    best = next((fields for fields in objects if fields.message), objects[-1])
    if effective is None:
        return RulingName.UPSTREAM_FAILURE, best
    if effective in STATUSES:
        return STATUSES[effective], best
    client = 400 <= effective < 500  # noqa: PLR2004 - HTTP's class of client errors
    return RulingName.BAD_REQUEST if client else RulingName.UPSTREAM_FAILURE, best


def _by_code(fields: ErrorFields, status: int | None) -> RulingName | None:
    for code in fields.codes:
        found = CODES.get(code) or CODES.get(code.split(".", 1)[0])
        if found is not None:
            # Groq's 413 bears the code of a rate limit: waiting does not make the request smaller.
            too_large = status == 413 and found is RulingName.RATE_LIMITED  # noqa: PLR2004
            return RulingName.CONTEXT_TOO_LONG if too_large else found
    return None


def _by_sentence(message: str, status: int | None, vendor: str) -> RulingName | None:
    text = _unwrapped(message)
    if not text:
        return None
    for statuses, pattern, name in _patterns(vendor):
        if (status is None or status in statuses) and pattern.match(text):
            return name
    return None


def _patterns(vendor: str) -> Iterable[tuple[frozenset[int], re.Pattern[str], RulingName]]:
    yield from PATTERNS.get(vendor, ())
    for name, rows in PATTERNS.items():
        if name != vendor:
            yield from rows


def _unwrapped(message: str) -> str:
    text = message.strip()[:_LOOK]
    for _ in range(_MOST_WRAPPERS):
        found = next((match for pattern in WRAPPERS if (match := pattern.match(text))), None)
        if found is None:
            break
        text = text[found.end() :].lstrip()
    return text


def _daily(name: RulingName, fields: ErrorFields) -> RulingName:
    if name is RulingName.RATE_LIMITED and any(_DAILY_QUOTA_ID.search(quota) for quota in fields.quota_ids):
        return RulingName.DAILY_QUOTA
    return name


def _outcome(
    name: RulingName, said: ErrorFields, status: int | None, stated: float | None, now: float
) -> Outcome:
    ruling = RULINGS[name]
    bench, provenance = ruling.bench_s, Provenance.GUESSED
    if name is RulingName.DAILY_QUOTA:
        google = bool(said.quota_ids)
        bench = _until_reset(now, _GOOGLE_RESET_HOUR_UTC if google else 0)
        if stated is not None and stated < _LEAST_DAILY_S:
            stated = None
    if stated is not None and ruling.cap_s > 0.0:
        bench, provenance = min(max(stated, 1.0), ruling.cap_s), Provenance.STATED
    detail = _unwrapped(said.message)[:_DETAIL] or (f"HTTP {status}" if status else ruling.kind.value)
    learned = stated_window(said.message) if ruling.kind is OutcomeKind.CONTEXT_TOO_LONG else None
    return Outcome(
        kind=ruling.kind,
        scope=ruling.scope,
        detail=detail,
        bench_s=bench,
        breaker_weight=ruling.weight,
        http_status=status,
        bench_from=provenance,
        learned_context_tokens=learned,
    )


def _until_reset(now: float, hour_utc: int) -> float:
    """Return the seconds until the next ``hour_utc`` o'clock, a minute at least."""
    moment = datetime.fromtimestamp(now, UTC)
    reset = moment.replace(hour=hour_utc, minute=0, second=0, microsecond=0)
    if reset <= moment:
        reset += timedelta(days=1)
    return max(_LEAST_DAILY_S, (reset - moment).total_seconds())
