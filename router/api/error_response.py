"""Write a gateway error as OpenAI's envelope: the one place where errors become statuses and JSON.

Knows the error tree; not where an error came from, and it never repeats what a client or an upstream
should not see: only the messages that we wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import orjson
from starlette.types import Send

from router.api.reply import Header, send_json
from router.errors import Exhausted, GatewayError, Origin

__all__ = ["error_body", "error_object", "plain_error_body", "retry_headers", "send_error"]

# OpenAI's error types for errors whose class does not fix the status.
_TYPE_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


def error_object(error: GatewayError, request_id: str) -> dict[str, object]:
    """Return what stands under ``error``: message, type, param, code; and ours: origin, request id, trail."""
    kind = error.type
    if isinstance(error, Exhausted):
        kind = _TYPE_OF_STATUS.get(error.http_status, "api_error")
    fields: dict[str, object] = {
        "message": error.message,
        "type": kind,
        "param": error.param,
        "code": error.envelope_code,
        "origin": error.origin.value,
        "request_id": request_id,
    }
    if isinstance(error, Exhausted):
        fields["trail"] = list(error.trail)
    if error.retry_after_s is not None:
        fields["retry_after_s"] = round(error.retry_after_s, 3)
    return fields


def error_body(error: GatewayError, request_id: str) -> bytes:
    """Return the whole envelope as JSON."""
    return orjson.dumps({"error": error_object(error, request_id)})


def plain_error_body(
    status: int, code: str, message: str, request_id: str, param: str | None = None
) -> bytes:
    """Return an envelope for what the HTTP framework refused: no such path, no such method."""
    return orjson.dumps(
        {
            "error": {
                "message": message,
                "type": _TYPE_OF_STATUS.get(status, "api_error"),
                "param": param,
                "code": code,
                "origin": (Origin.CLIENT if status < 500 else Origin.GATEWAY).value,  # noqa: PLR2004 - HTTP's classes
                "request_id": request_id,
            }
        }
    )


def retry_headers(error: GatewayError) -> list[Header]:
    """Return ``Retry-After`` in whole seconds, rounded up, where the error says when to come back."""
    if error.retry_after_s is None:
        return []
    return [(b"retry-after", str(max(0, ceil(error.retry_after_s))).encode())]


async def send_error(
    send: Send, error: GatewayError, request_id: str, headers: Iterable[Header] = ()
) -> None:
    """Send ``error`` as a whole answer."""
    extra = [*retry_headers(error), *headers]
    if error.http_status == 401:  # noqa: PLR2004 - RFC 9110 wants the challenge with exactly this status
        extra.append((b"www-authenticate", b"Bearer"))
    await send_json(send, error.http_status, error_body(error, request_id), extra)
