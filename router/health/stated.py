"""Times and sizes that an upstream states in words: "try again in 7m12s", "maximum context length is 8192".

Pure. Only asked once an error's class is certain: what is read here sets how long or how much, never what.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from router.health.error_body import ErrorFields
from router.health.retry_after import duration_seconds

__all__ = ["stated_wait", "stated_window"]

_LOOK = 400

_TRY_AGAIN = re.compile(
    r"(?:try again|retry|please wait|resets?)(?: after| in| for)? "
    r"(?P<span>\d{1,8}(?:\.\d{1,6})? ?(?:seconds?|minutes?|hours?)"
    r"|(?:\d{1,4}d)?(?:\d{1,5}h)?(?:\d{1,6}m(?!s))?(?:\d{1,8}(?:\.\d{1,6})?m?s)?)(?!\w)",
    re.IGNORECASE | re.ASCII,
)
_WORDED_SPAN = re.compile(r"(?P<n>[\d.]+) ?(?P<unit>second|minute|hour)s?", re.IGNORECASE | re.ASCII)
_DATE = re.compile(
    r"(?:on|at|until|after|在|于) ?(?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:(?:T| at | )(?P<time>\d{2}:\d{2}(?::\d{2})?))?",
    re.IGNORECASE | re.ASCII,
)
_WINDOW = re.compile(
    r"(?:maximum context length (?:is|of)|context (?:length|size|window)(?: of| is)? \(?|tokens > |"
    r"maximum allowed length \(|maximum model length of |model token limit: ?|too large for model with |"
    r"available context size \(|maximum number of tokens allowed \(?|input length should be \[1, )"
    r" ?(?P<tokens>\d{3,8})",
    re.IGNORECASE | re.ASCII,
)
_UNITS = (("second", 1.0), ("minute", 60.0), ("hour", 3_600.0))
# Z.ai writes the time of its own clock.
_CHINA = timedelta(hours=8)
_CHINESE_CLOCKS = frozenset({"1308", "1310"})


def stated_wait(objects: Sequence[ErrorFields], told_by: ErrorFields, now: float) -> float | None:
    """Return the seconds that an error body names: a typed field first, then a date, then words."""
    for fields in objects:
        if fields.reset_at_s is not None and fields.reset_at_s > now:
            return fields.reset_at_s - now
        if fields.retry_after_s is not None:
            return fields.retry_after_s
    text = told_by.message[:_LOOK]
    shift = _CHINA if _CHINESE_CLOCKS.intersection(told_by.codes) else timedelta(0)
    dated = _date_in(text, shift, now)
    return dated if dated is not None else _span_in(text)


def stated_window(text: str) -> int | None:
    """Return the context window in tokens that a refusal names."""
    found = _WINDOW.search(text[:_LOOK])
    return int(found["tokens"]) if found is not None else None


def _date_in(text: str, shift: timedelta, now: float) -> float | None:
    found = _DATE.search(text)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{found['day']}T{found['time'] or '00:00'}+00:00") - shift
    except (ValueError, OverflowError):
        return None
    wait = moment.timestamp() - now
    return wait if wait > 0.0 else None


def _span_in(text: str) -> float | None:
    found = _TRY_AGAIN.search(text)
    if found is None or not found["span"]:
        return None
    worded = _WORDED_SPAN.fullmatch(found["span"])
    if worded is None:
        return duration_seconds(found["span"])
    factor = next(seconds for unit, seconds in _UNITS if unit == worded["unit"].lower())
    return float(worded["n"]) * factor
