"""``POST /admin/explain``: where a request would go and why, with every term; nothing is sent anywhere.

Takes the body that ``/v1/chat/completions`` takes. Knows the decision's shape; not how it is made.
"""

from __future__ import annotations

import orjson
from starlette.types import Receive, Scope, Send

from router.api.error_response import send_error
from router.api.middleware import request_id_of
from router.api.reply import read_body, send_json
from router.chat.openai_wire import read_chat_request
from router.errors import ClientDisconnected, GatewayError
from router.gateway import Gateway
from router.routing.explanation import explain

__all__ = ["Explain"]


class Explain:
    """The endpoint, as an ASGI application."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            body = await read_body(receive, self._gateway.catalog.limits.max_body_bytes)
            decision = self._gateway.decide(read_chat_request(body))
        except ClientDisconnected:
            return
        except GatewayError as error:
            await send_error(send, error, request_id_of(scope))
            return
        await send_json(send, 200, orjson.dumps(explain(decision)))
