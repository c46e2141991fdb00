"""What happens to every HTTP request, whatever it asks for: id, key, size limit, log line, last resort.

Plain ASGI: nothing is buffered, and a disconnect reaches the handler. Knows no chat.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from router.api.error_response import send_error
from router.api.reply import request_header
from router.clock import Clock
from router.errors import (
    AuthenticationFailed,
    ClientDisconnected,
    GatewayError,
    InternalError,
    RequestTooLarge,
)

__all__ = ["Edge", "request_id_of"]

_ID_KEY: Final = "roundhouse.request_id"
_VALID_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_OPEN_PATHS = frozenset({"/", "/health/live", "/health/ready"})
_QUIET_PATHS = frozenset({"/health/live", "/health/ready", "/metrics"})
_NOBODY = ((b"x-roundhouse-candidate", b"none"), (b"x-roundhouse-attempts", b"0"))


def request_id_of(scope: Scope) -> str:
    """Return the request's id, which :class:`Edge` gave it or took from the client."""
    return str(scope.get(_ID_KEY, ""))


class Edge:
    """The outermost application. ``api_key`` empty means that everybody may come in.

    ``direct`` are applications that a POST to exactly that path reaches without a way through ``app``: a
    framework's layers cost more than the whole of routing.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        clock: Clock,
        max_body_bytes: int,
        api_key: str = "",
        direct: Mapping[str, ASGIApp] | None = None,
    ) -> None:
        self._app = app
        self._direct = dict(direct or {})
        self._clock = clock
        self._max_body_bytes = max_body_bytes
        self._api_key = api_key.encode()
        self._log = structlog.get_logger("access")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's message exchange (ASGI 3)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope[_ID_KEY] = _request_id(scope)
        reply = _Reply(send, request_id, with_nobody=scope["path"].startswith("/v1/"))
        started = self._clock.monotonic()
        try:
            self._admit(scope)
            app = self._direct.get(scope["path"], self._app) if scope["method"] == "POST" else self._app
            await app(scope, receive, reply.send)
        except GatewayError as error:
            await reply.last_resort(error)
        except Exception:  # noqa: BLE001 - whatever it was, the client gets an answer and the log the story
            self._log.exception("a request met a defect", request_id=request_id, path=scope["path"])
            await reply.last_resort(
                InternalError("an internal error; the gateway's log has it under this id")
            )
        finally:
            if scope["path"] not in _QUIET_PATHS:
                self._log.info(
                    "request",
                    method=scope["method"],
                    path=scope["path"],
                    # Whoever left before the first byte saw no status at all.
                    status=reply.status or ClientDisconnected.status,
                    ms=round((self._clock.monotonic() - started) * 1000, 1),
                    request_id=request_id,
                    **reply.facts,
                )

    def _admit(self, scope: Scope) -> None:
        if self._api_key and scope["path"] not in _OPEN_PATHS and scope["method"] != "OPTIONS":
            offered = _offered_key(scope)
            if not hmac.compare_digest(offered.encode("utf-8", "replace"), self._api_key):
                what = "that API key is not this gateway's" if offered else "an API key is needed"
                raise AuthenticationFailed(f"{what}: send 'Authorization: Bearer <ROUNDHOUSE_API_KEY>'")
        length = request_header(scope, b"content-length")
        if (
            length is not None
            and length.isascii()
            and length.isdigit()
            and int(length) > self._max_body_bytes
        ):
            raise RequestTooLarge(f"the request body is larger than {self._max_body_bytes} bytes")


class _Reply:
    """Watches an answer go by: adds the id, remembers the status."""

    def __init__(self, send: Send, request_id: str, *, with_nobody: bool) -> None:
        self._send = send
        self._request_id = request_id
        self._with_nobody = with_nobody
        self.status: int | None = None
        self.facts: dict[str, str] = {}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            headers.append((b"x-roundhouse-request-id", self._request_id.encode()))
            named = dict(headers)
            if self._with_nobody:
                headers.extend(pair for pair in _NOBODY if pair[0] not in named)
            if b"x-roundhouse-candidate" in named:
                self.facts = {"candidate": named[b"x-roundhouse-candidate"].decode("latin-1")}
            message = {**message, "headers": headers}
        await self._send(message)

    async def last_resort(self, error: GatewayError) -> None:
        """Answer with ``error`` where nothing was answered yet; else the connection just ends."""
        if self.status is None:
            await send_error(self.send, error, self._request_id)


def _request_id(scope: Scope) -> str:
    """Take the client's id where it is harmless in a log and a header, else make one."""
    for name in (b"x-roundhouse-request-id", b"x-request-id"):
        offered = request_header(scope, name)
        if offered is not None and _VALID_ID.fullmatch(offered):
            return offered
    return f"req_{secrets.token_hex(12)}"


def _offered_key(scope: Scope) -> str:
    scheme, _, key = (request_header(scope, b"authorization") or "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return (request_header(scope, b"x-api-key") or "").strip()
