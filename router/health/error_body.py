"""What an upstream's error body says, field by field, whatever its vendor's shape.

Reads JSON only where JSON is: an HTML page or half a body has no fields, and then status and the adapter's
own reading count. Only fields that vendors write themselves (message, code, type, status, reasons, quota
names) are read, never echoed input. Pure; never raises on any text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from router.chat.types import JsonValue
from router.health.retry_after import duration_seconds

__all__ = ["ErrorFields", "read_error_body"]

_LONGEST = 64 * 1024
_DEEPEST = 3
_MESSAGE_NAMES = ("message", "msg", "error_msg", "status_msg", "errmsg")


@dataclass(frozen=True, slots=True)
class ErrorFields:
    """One error object. Texts are as they came; ``codes`` holds every typed word, the most telling first."""

    message: str = ""
    codes: tuple[str, ...] = ()
    status: int | None = None
    retry_after_s: float | None = None
    reset_at_s: float | None = None
    quota_ids: tuple[str, ...] = ()


def read_error_body(text: str) -> tuple[ErrorFields, ...]:
    """Return the error objects of a body, outermost first; a gateway's body may wrap its upstream's."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")) or len(stripped) > _LONGEST:
        return ()
    try:
        value = cast("JsonValue", json.loads(stripped))
    except (ValueError, RecursionError):
        return ()
    return tuple(_objects(value, 0))


def _objects(value: JsonValue, depth: int) -> Iterator[ErrorFields]:
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        yield from _from_text(value.strip())
        return
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, dict):
        yield from _from_object(value, depth)


def _from_text(text: str) -> Iterator[ErrorFields]:
    if text.startswith(("{", "[")):
        yield from read_error_body(text[:_LONGEST])
    elif text:
        yield ErrorFields(message=text)


def _from_object(value: Mapping[str, JsonValue], depth: int) -> Iterator[ErrorFields]:
    error = value.get("error")
    if isinstance(error, dict) and error:
        yield from _with_nested(error, depth)
        return
    own = next((text for name in _MESSAGE_NAMES if (text := _text(value.get(name)))), "")
    if isinstance(error, str) and error:
        # "error" is then either the sentence itself or a code beside one.
        yield ErrorFields(own or error, (error.casefold(), *_codes(value)) if own else _codes(value))
        return
    for name in ("base_resp", "errors", "detail"):
        nested = value.get(name)
        if isinstance(nested, dict | list) and nested and not own:
            yield from _objects(nested if name != "base_resp" else _base_resp(nested), depth + 1)
            return
    yield from _with_nested(value, depth)


def _base_resp(value: JsonValue) -> JsonValue:
    """Mark MiniMax's codes: its numbers mean other things at other vendors."""
    if not isinstance(value, dict):
        return value
    return {"message": value.get("status_msg"), "code": f"base_resp:{value.get('status_code')}"}


def _with_nested(fields: Mapping[str, JsonValue], depth: int) -> Iterator[ErrorFields]:
    metadata = fields.get("metadata")
    details = _details(fields.get("details"))
    headers = metadata.get("headers") if isinstance(metadata, dict) else None
    message = next((text for name in (*_MESSAGE_NAMES, "detail") if (text := _text(fields.get(name)))), "")
    yield ErrorFields(
        message=message,
        codes=(*details.codes, *_codes(fields)),
        status=_status(fields.get("code"))
        or _status(fields.get("status_code"))
        or _status(fields.get("status")),
        retry_after_s=details.retry_after_s,
        reset_at_s=_reset_of(headers),
        quota_ids=details.quota_ids,
    )
    if isinstance(metadata, dict) and "raw" in metadata:
        yield from _objects(metadata["raw"], depth + 1)
    nested = fields.get("message")
    if isinstance(nested, dict):
        yield from _objects(nested, depth + 1)
    elif message.startswith(("{", "[")):
        # A gateway that hands on its upstream's whole body as the message.
        yield from read_error_body(message[:_LONGEST])


def _codes(fields: Mapping[str, JsonValue]) -> tuple[str, ...]:
    words: list[str] = []
    for name in ("code", "type", "status", "error_type", "error_code"):
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and _status(value) is None:
            value = str(value)
        if isinstance(value, str) and value and _status(value) is None:
            words.append(value.strip().casefold())
    return tuple(words)


def _details(value: JsonValue) -> ErrorFields:
    """Read Google's typed details: reasons, retry delays and the names of quotas."""
    codes: list[str] = []
    quotas: list[str] = []
    retry: float | None = None
    for item in value if isinstance(value, list) else ():
        if not isinstance(item, dict):
            continue
        if reason := _text(item.get("reason")):
            codes.append(reason.casefold())
        if delay := _text(item.get("retryDelay")):
            retry = duration_seconds(delay)
        violations = item.get("violations")
        quotas.extend(
            quota
            for violation in (violations if isinstance(violations, list) else ())
            if isinstance(violation, dict) and (quota := _text(violation.get("quotaId")))
        )
    return ErrorFields(codes=tuple(codes), retry_after_s=retry, quota_ids=tuple(quotas))


def _reset_of(headers: JsonValue) -> float | None:
    """Read the wall-clock time of OpenRouter's echoed ``X-RateLimit-Reset``, in epoch milliseconds."""
    if not isinstance(headers, dict):
        return None
    text = _text(headers.get("X-RateLimit-Reset"))
    return float(text) / 1000.0 if text.isascii() and text.isdigit() and len(text) == 13 else None  # noqa: PLR2004


def _text(value: JsonValue) -> str:
    return value.strip() if isinstance(value, str) else ""


def _status(value: JsonValue) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:  # noqa: PLR2004
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:  # noqa: PLR2004
        return value
    return None
