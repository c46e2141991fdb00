"""``POST /v1/chat/completions``: read the body, have it answered, relay it as a stream or as one object.

Plain ASGI, since this is the path that every token takes. Knows the wire; not who answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import orjson
from starlette.types import Receive, Scope, Send

from router.api.error_response import send_error
from router.api.middleware import request_id_of
from router.api.reply import Header, read_body, send_json
from router.api.sse import DONE, EVENT_STREAM_HEADERS, data_frame, error_frame
from router.chat.accumulate import accumulate
from router.chat.openai_wire import is_usage_only, read_chat_request
from router.chat.types import ChatRequest
from router.errors import ClientDisconnected, GatewayError
from router.gateway import Gateway
from router.story import Story

__all__ = ["ChatCompletions"]

_SURFACE = "chat_completions"


class ChatCompletions:
    """The endpoint, as an ASGI application."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        story = self._gateway.arrived(request_id_of(scope), _SURFACE)
        try:
            request = read_chat_request(await read_body(receive, self._gateway.catalog.limits.max_body_bytes))
        except GatewayError as error:
            self._gateway.refuse(story, error)
            if not isinstance(error, ClientDisconnected):
                await send_error(send, error, story.request_id)
            return
        serve = self._stream if request.stream else self._whole
        await _while_connected(receive, lambda: serve(story, request, send))

    async def _stream(self, story: Story, request: ChatRequest, send: Send) -> None:
        """Relay the upstream's frames as they came."""
        started = False
        try:
            async with self._gateway.answer(story, request) as answer:
                headers = [*EVENT_STREAM_HEADERS, *_headers(story)]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                started = True
                async for event in answer.events:
                    if event.frame is None or (is_usage_only(event) and not request.include_usage):
                        continue
                    await send(_piece(data_frame(event.frame.data)))
                await send(_piece(DONE))
        except GatewayError as error:
            if not started:
                await send_error(send, error, story.request_id, _headers(story))
                return
            # The client has seen a part: it is told, in the stream, and gets no [DONE].
            await send(_piece(error_frame(error, story.request_id)))
        await send({"type": "http.response.body", "body": b""})

    async def _whole(self, story: Story, request: ChatRequest, send: Send) -> None:
        """Fold the events into one completion."""
        try:
            async with self._gateway.answer(story, request) as answer:
                completion = await accumulate(answer.events)
        except GatewayError as error:
            await send_error(send, error, story.request_id, _headers(story))
            return
        await send_json(send, 200, orjson.dumps(completion), _headers(story))


async def _while_connected(receive: Receive, serve: Callable[[], Awaitable[None]]) -> None:
    """Run ``serve`` and cancel it as soon as the client has left: the upstream is closed with it."""

    async def watch(serving: asyncio.Task[None]) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        serving.cancel()

    async def run() -> None:
        await serve()

    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(run())
        watching = tasks.create_task(watch(serving))
        serving.add_done_callback(lambda _: watching.cancel())


def _piece(data: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": True}


def _headers(story: Story) -> list[Header]:
    return [
        (b"x-roundhouse-candidate", (story.candidate or "none").encode("latin-1", "replace")),
        (b"x-roundhouse-attempts", str(story.attempts_made).encode()),
    ]
