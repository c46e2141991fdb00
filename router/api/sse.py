"""Server-sent events as bytes: a frame relayed as it came, the ending, an error in the middle.

Source: the WHATWG HTML standard, 9.2; OpenAI's ``[DONE]``. Knows no chat.
"""

from __future__ import annotations

from router.api.error_response import error_body
from router.errors import GatewayError

__all__ = ["DONE", "EVENT_STREAM_HEADERS", "data_frame", "error_frame"]

DONE = b"data: [DONE]\n\n"

# Proxies must neither keep nor collect what is meant to arrive piece by piece.
EVENT_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


def data_frame(data: bytes) -> bytes:
    """Frame ``data``; a line break inside becomes a second ``data:`` line, as the standard wants."""
    if b"\n" in data:
        return b"".join(b"data: " + line + b"\n" for line in data.split(b"\n")) + b"\n"
    return b"data: " + data + b"\n\n"


def error_frame(error: GatewayError, request_id: str) -> bytes:
    """Frame an error that came after the stream had begun, in OpenAI's shape; no ``[DONE]`` follows it."""
    return data_frame(error_body(error, request_id))
