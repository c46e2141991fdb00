"""What an OpenAI-compatible upstream says when it refuses: status and body → a typed error.

Reads the typed fields (``code``, ``type``, ``message``) of the shapes that vendors use; who is benched for
it, and what a text means, is :mod:`router.health`'s to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from router.chat.types import JsonValue
from router.errors import UpstreamInBandError, UpstreamStatus
from router.health.retry_after import parse_retry_after
from router.providers.credentials import ProviderKeys

__all__ = [
    "ErrorObject",
    "find_error_object",
    "find_flat_error_object",
    "in_band_error",
    "status_error",
]

MAXIMUM_EXCERPT: Final = 2_000
_HTTP_ERRORS: Final = range(400, 600)
_TAG: Final = re.compile(r"<(?:script|style).*?</(?:script|style)>|<[^>]*>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ErrorObject:
    """The typed fields of an upstream's error, each ``None`` where it had none."""

    message: str
    code: str | None = None
    type: str | None = None
    status: int | None = None


def find_error_object(value: JsonValue) -> ErrorObject | None:
    """Find the error in a decoded body or frame, whatever its vendor's shape; ``None`` where there is none.

    Shapes: ``{"error": {...}}`` (OpenAI and most), ``{"error": "text"}`` (Ollama, TGI), ``[{"error":
    {...}}]`` (Gemini), ``{"object": "error", "message": ...}`` (vLLM), ``{"type": "error", "error":
    {...}}`` (Anthropic).
    """
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, str) and error:
        return ErrorObject(error, code=_text(value.get("code")), type=_text(value.get("error_type")))
    if isinstance(error, dict) and error:
        return _from_fields(error)
    if value.get("object") == "error" or value.get("type") == "error":
        return _from_fields(value)
    return None


def find_flat_error_object(value: JsonValue) -> ErrorObject | None:
    """As :func:`find_error_object`, and the flat shapes that only an error status makes an error.

    ``{"code": ..., "message": ...}`` (DashScope, Cohere, SiliconFlow), ``{"detail": ...}`` (FastAPI),
    ``{"msg": ...}``.
    """
    found = find_error_object(value)
    if found is not None or not isinstance(value, dict):
        return found
    if any(_text(value.get(name)) for name in ("message", "msg", "detail", "code")):
        return _from_fields(value)
    return None


def status_error(
    status: int, headers: Mapping[str, str], body: bytes, *, keys: ProviderKeys, now: float
) -> UpstreamStatus:
    """Build the error of an answer whose status is not 2xx; ``now`` is the wall clock."""
    text = body.decode("utf-8", "replace")
    found = find_flat_error_object(_decoded(body))
    excerpt = keys.redact(_readable(text))
    if len(excerpt) > MAXIMUM_EXCERPT and found is not None:
        # Cut JSON is no JSON: the typed fields alone fit.
        excerpt = keys.redact(orjson.dumps({"error": _as_fields(found)}).decode())
    excerpt = excerpt[:MAXIMUM_EXCERPT]
    said = keys.redact(found.message)[:300] if found is not None and found.message else excerpt[:200]
    if status in range(300, 400):
        where = headers.get("location", "nowhere")
        said = f"redirects to {where}, which is not followed: write the final address into base_url"
    return UpstreamStatus(
        f"HTTP {status}: {said}" if said else f"HTTP {status}",
        upstream_status=status,
        upstream_code=found.code if found is not None else None,
        upstream_type=found.type if found is not None else None,
        body_excerpt=excerpt,
        retry_after_s=parse_retry_after(headers, now),
    )


def in_band_error(
    found: ErrorObject, *, keys: ProviderKeys, retry_after_s: float | None = None
) -> UpstreamInBandError:
    """Build the error of an error object that came inside a 200 answer."""
    return UpstreamInBandError(
        keys.redact(found.message)[:MAXIMUM_EXCERPT] or "the upstream reported an error",
        upstream_status=found.status,
        upstream_code=found.code,
        upstream_type=found.type,
        retry_after_s=retry_after_s,
    )


def _as_fields(found: ErrorObject) -> dict[str, JsonValue]:
    return {"message": found.message[:500], "type": found.type, "code": found.code, "status": found.status}


def _from_fields(fields: Mapping[str, JsonValue]) -> ErrorObject:
    code = fields.get("code")
    message = next(
        (text for name in ("message", "msg", "detail") if (text := _text(fields.get(name)))),
        "",
    )
    # Gemini writes the words in "status" and the HTTP status in "code"; OpenRouter only the latter.
    words = _text(fields.get("status"))
    return ErrorObject(
        message=message,
        code=_text(code) if not _is_status(code) else words,
        type=_text(fields.get("type")),
        status=_status(code) or _status(fields.get("status_code")) or _status(fields.get("status")),
    )


def _is_status(value: JsonValue) -> bool:
    return _status(value) is not None


def _status(value: JsonValue) -> int | None:
    """Read an HTTP error status, as a number or its digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value in _HTTP_ERRORS:
        return value
    return None


def _text(value: JsonValue) -> str | None:
    if isinstance(value, str):
        return value or None
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return str(value)
    return orjson.dumps(value).decode()[:MAXIMUM_EXCERPT]


def _decoded(body: bytes) -> JsonValue:
    try:
        decoded: JsonValue = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return decoded


def _readable(text: str) -> str:
    """Drop the markup of an error page, which would fill the excerpt, and fold white space."""
    if text.lstrip()[:1] == "<":
        text = _TAG.sub(" ", text)
    return " ".join(text.split())
