"""The few ASGI messages that an answer is made of, without a framework's response object between.

Knows bytes and headers; not what an answer means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import orjson
from starlette.types import Receive, Scope, Send

from router.errors import ClientDisconnected, InvalidRequest, RequestTooLarge
from router.story import ClientHints

__all__ = [
    "Header",
    "hints_of",
    "read_body",
    "read_json_object",
    "request_header",
    "send_json",
    "send_reply",
    "session_of",
]

Header = tuple[bytes, bytes]

# What frontends call the conversation that a request belongs to.
_SESSION_HEADERS = frozenset(
    {b"x-session-id", b"x-session-affinity", b"x-opencode-session", b"x-conversation-id", b"session_id"}
)
_LONGEST_SESSION = 200
_KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})
_NO = frozenset({b"off", b"no", b"false", b"0", b"never"})


async def send_reply(
    send: Send, status: int, body: bytes, content_type: bytes, headers: Iterable[Header] = ()
) -> None:
    """Send one whole answer."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", content_type),
                (b"content-length", str(len(body)).encode()),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, status: int, body: bytes, headers: Iterable[Header] = ()) -> None:
    """Send one whole answer of JSON that is already written."""
    await send_reply(send, status, body, b"application/json", headers)


async def read_body(receive: Receive, limit: int) -> bytes:
    """Read a request's body, at most ``limit`` bytes.

    Raises
    ------
    RequestTooLarge
        There are more bytes than that, whatever the length header said.
    ClientDisconnected
        The client left before it had sent all.

    """
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected("the client left while sending its request")
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise RequestTooLarge(f"the request body is larger than {limit} bytes")
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def read_json_object(body: bytes) -> dict[str, object]:
    """Parse a body that must be one JSON object.

    Raises
    ------
    InvalidRequest
        It is not JSON, or not an object.

    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    return value


def hints_of(scope: Scope) -> ClientHints:
    """Return what the client says beside its request, in headers.

    ``x-roundhouse-priority`` is ``interactive`` or ``background``; ``x-roundhouse-join: off`` wants an answer
    of its own. Of its key only a digest is kept.
    """
    keys = hashlib.sha256()
    priority, may_join = "", True
    for name, value in scope["headers"]:
        if name in _KEY_HEADERS:
            keys.update(name + b"\0" + value + b"\0")
        elif name == b"x-roundhouse-priority":
            priority = value[:_LONGEST_SESSION].decode("latin-1")
        elif name == b"x-roundhouse-join":
            may_join = value.strip().lower() not in _NO
    return ClientHints(keys.hexdigest(), priority, may_join)


def session_of(scope: Scope) -> str:
    """Return the client's own name for its conversation, 200 characters at most; empty where it has none."""
    for key, value in scope["headers"]:
        if key in _SESSION_HEADERS:
            return str(value[:_LONGEST_SESSION].decode("latin-1"))
    return ""


def request_header(scope: Scope, name: bytes) -> str | None:
    """Return a request header's value; ``name`` in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None
