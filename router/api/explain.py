"""``POST /admin/explain``: where a request would go and why, with every term; nothing is sent anywhere.

Takes the body that ``/v1/chat/completions`` takes; answers JSON, or a table where ``Accept`` asks for
``text/plain``. Knows the decision's shape; not how it is made.
"""

from __future__ import annotations

from dataclasses import replace

import orjson
from starlette.types import Receive, Scope, Send

from router.api.error_response import send_error
from router.api.middleware import request_id_of
from router.api.reply import hints_of, read_body, request_header, send_json, send_reply, session_of
from router.chat.openai_wire import read_chat_request
from router.chat.types import Caller
from router.errors import ClientDisconnected, GatewayError
from router.gateway import Gateway
from router.routing.explanation import explain, explanation_table

__all__ = ["Explain"]


class Explain:
    """The endpoint, as an ASGI application."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            body = await read_body(receive, self._gateway.catalog.limits.max_body_bytes)
            # Conversations belong to their callers: whoever asks here sees his own.
            caller = Caller(principal=hints_of(scope).principal)
            request = replace(read_chat_request(body), caller=caller)
            decision = self._gateway.decide(request, session_of(scope))
        except ClientDisconnected:
            return
        except GatewayError as error:
            await send_error(send, error, request_id_of(scope))
            return
        if "text/plain" in (request_header(scope, b"accept") or ""):
            table = explanation_table(decision).encode()
            await send_reply(send, 200, table + b"\n", b"text/plain; charset=utf-8")
            return
        await send_json(send, 200, orjson.dumps(explain(decision)))
