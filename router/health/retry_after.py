"""When an upstream says it may be asked again: response headers to seconds.

Pure: reads header values, with ``now`` handed in for absolute times. Sources: RFC 9110 10.2.3
(``Retry-After``, seconds or an HTTP date), OpenAI's and Azure's ``retry-after-ms`` and
``x-ms-retry-after-ms``, the ``x-ratelimit-reset*`` family (OpenAI and Groq: ``1m2.5s``; OpenRouter: epoch
milliseconds; GitHub and others: epoch seconds), Anthropic's RFC 3339 ``anthropic-ratelimit-*-reset``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["RETRY_AFTER_CAP_S", "duration_seconds", "parse_retry_after"]

# A header may not bench anybody for longer than a month, whatever it says.
RETRY_AFTER_CAP_S = 31 * 86_400.0

_MILLISECOND_HEADERS = ("retry-after-ms", "x-ms-retry-after-ms")
_RESET_HEADERS = ("x-ratelimit-reset", "ratelimit-reset", "x-rate-limit-reset")
# Pairs of what is left and when it is back: only a limit that is used up says when to return.
_LIMIT_PAIRS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining-requests-day", "x-ratelimit-reset-requests-day"),
    ("x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
)

_NUMBER = re.compile(r"\+?\d{1,18}(?:\.\d{0,9})?", re.ASCII)
_DURATION = re.compile(
    r"(?=\d)(?:(?P<d>\d{1,4})d)?\s*(?:(?P<h>\d{1,5})h)?\s*(?:(?P<m>\d{1,6})m(?!s))?\s*"
    r"(?:(?P<s>\d{1,8}(?:\.\d{0,9})?)s)?\s*(?:(?P<ms>\d{1,10}(?:\.\d{0,9})?)ms)?",
    re.ASCII,
)
# Figures from here on are moments, not durations: 2001-09-09 in seconds, and the same in milliseconds.
_EPOCH_SECONDS, _EPOCH_MILLISECONDS = 1e9, 1e12
_LONGEST_VALUE = 64


def duration_seconds(text: str) -> float | None:
    """Read a duration such as ``20s``, ``1m2.5s``, ``6h45m``, ``500ms``; ``None`` where it is none."""
    found = _DURATION.fullmatch(text.strip()[:_LONGEST_VALUE].lower())
    if found is None or not any(found.groups()):
        return None
    factors = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    return sum(float(value) * factors[unit] for unit, value in found.groupdict().items() if value)


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return in how many seconds the upstream wants to be asked again.

    ``headers`` may be spelt in any case; ``now`` is wall-clock seconds. Millisecond headers come first
    (they are the finer statement of the same), then ``Retry-After``, then resets of limits that are used
    up. Negative, unreadable or absurd values are no statement: ``None``. A moment that is already past
    gives 0. Never raises on a header's text; capped at :data:`RETRY_AFTER_CAP_S`.
    """
    values = {name.lower(): value.strip() for name, value in headers.items()}
    for name in _MILLISECOND_HEADERS:
        milliseconds = _number(values.get(name))
        if milliseconds is not None:
            return _capped(milliseconds / 1000.0)
    for name in ("retry-after", *_RESET_HEADERS):
        if name in values:
            seconds = _moment_or_duration(values[name], now)
            if seconds is not None:
                return _capped(seconds)
    waits = [
        seconds
        for remaining, reset in _LIMIT_PAIRS
        if reset in values
        and _number(values.get(remaining)) == 0.0
        and (seconds := _moment_or_duration(values[reset], now)) is not None
    ]
    return _capped(max(waits)) if waits else None


def _number(text: str | None) -> float | None:
    if text is None or len(text) > _LONGEST_VALUE or not _NUMBER.fullmatch(text):
        return None
    return float(text)


def _moment_or_duration(text: str, now: float) -> float | None:
    number = _number(text)
    if number is not None:
        if number >= _EPOCH_MILLISECONDS:
            return max(0.0, number / 1000.0 - now)
        return max(0.0, number - now) if number >= _EPOCH_SECONDS else number
    if not text or len(text) > _LONGEST_VALUE:
        return None
    duration = duration_seconds(text)
    return duration if duration is not None else _until_date(text, now)


def _until_date(text: str, now: float) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return max(0.0, moment.timestamp() - now)
    except (OverflowError, ValueError):
        return None


def _capped(seconds: float) -> float | None:
    return min(seconds, RETRY_AFTER_CAP_S) if math.isfinite(seconds) else None
