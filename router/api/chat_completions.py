"""``POST /v1/chat/completions``: read the body, have it answered, relay it as a stream or as one object.

Plain ASGI, since this is the path that every token takes. Knows the wire; not who answers.
"""

from __future__ import annotations

import asyncio

import orjson
from starlette.types import Receive, Scope, Send

from router.api.error_response import send_error
from router.api.keep_alive import KeepAlive, comment
from router.api.middleware import request_id_of
from router.api.open_requests import OpenRequests
from router.api.reply import Header, hints_of, read_body, send_json, session_of
from router.api.sse import DONE, EVENT_STREAM_HEADERS, data_frame, error_frame
from router.chat.accumulate import accumulate
from router.chat.openai_wire import is_usage_only, read_chat_request
from router.chat.types import ChatRequest
from router.errors import ClientDisconnected, GatewayError, InternalError, ShuttingDown
from router.gateway import Gateway
from router.story import Story

__all__ = ["ChatCompletions"]

_SURFACE = "chat_completions"

# Sent where the connection must be kept alive before it is known who answers: a comment says so later.
_EARLY_START: dict[str, object] = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        *EVENT_STREAM_HEADERS,
        (b"x-roundhouse-candidate", b"pending"),
        (b"x-roundhouse-attempts", b"pending"),
    ],
}


class ChatCompletions:
    """The endpoint, as an ASGI application."""

    def __init__(self, gateway: Gateway, open_requests: OpenRequests) -> None:
        self._gateway = gateway
        self._open = open_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        story = self._gateway.arrived(request_id_of(scope), _SURFACE, session_of(scope), hints_of(scope))
        try:
            request = read_chat_request(await read_body(receive, self._gateway.catalog.limits.max_body_bytes))
        except GatewayError as error:
            self._gateway.refuse(story, error)
            if not isinstance(error, ClientDisconnected):
                await send_error(send, error, story.request_id)
            return
        work = self._stream if request.stream else self._whole
        await self._open.serve(story, lambda group: work(story, request, send, group), receive)

    async def _stream(self, story: Story, request: ChatRequest, send: Send, group: asyncio.TaskGroup) -> None:
        """Relay the upstream's frames as they came; until the first one, keep the connection alive."""
        limits = self._gateway.catalog.limits
        kept = KeepAlive(
            group,
            send,
            _EARLY_START,
            after_s=limits.keep_alive_after_s,
            every_s=limits.keep_alive_every_s,
            begins=story.begin_early,
        )
        try:
            await self._relay(story, request, send, kept)
        finally:
            kept.stop()

    async def _relay(self, story: Story, request: ChatRequest, send: Send, kept: KeepAlive) -> None:
        started, ending = False, DONE
        try:
            async with self._gateway.answer(story, request) as events:
                await kept.end()
                await send(_named(story) if kept.began else _start(story))
                started = True
                async for event in events:
                    if event.frame is not None:
                        if request.include_usage or not is_usage_only(event):
                            await send(_piece(data_frame(event.frame.data)))
                    elif event.is_semantic:
                        raise InternalError(
                            f"{story.candidate} said something in a wire that is not this one"
                        )
        except (GatewayError, asyncio.CancelledError) as error:
            known = _known(error, story)
            await kept.end()
            if not (started or kept.began):
                await send_error(send, known, story.request_id, _headers(story))
                return
            # The client has seen a part: it is told, in the stream, and gets no [DONE].
            ending = error_frame(known, story.request_id)
        await send({"type": "http.response.body", "body": ending})

    async def _whole(self, story: Story, request: ChatRequest, send: Send, _group: asyncio.TaskGroup) -> None:
        """Fold the events into one completion."""
        try:
            async with self._gateway.answer(story, request) as events:
                completion = await accumulate(
                    events,
                    default_id=f"chatcmpl-{story.request_id}",
                    default_created=int(story.received_at),
                    default_model=request.model,
                )
        except (GatewayError, asyncio.CancelledError) as error:
            await send_error(send, _known(error, story), story.request_id, _headers(story))
            return
        await send_json(send, 200, orjson.dumps(completion), _headers(story))


def _known(error: GatewayError | asyncio.CancelledError, story: Story) -> GatewayError:
    """Return what to tell the client; a cancellation that is not our own stop goes on."""
    if isinstance(error, GatewayError):
        return error
    if isinstance(story.cut, ShuttingDown):
        return story.cut
    raise error


def _start(story: Story) -> dict[str, object]:
    return {
        "type": "http.response.start",
        "status": 200,
        "headers": [*EVENT_STREAM_HEADERS, *_headers(story)],
    }


def _named(story: Story) -> dict[str, object]:
    task = f" task={story.task}" if story.task is not None else ""
    joined = f" joined={story.joined}" if story.joined else ""
    told = f"roundhouse candidate={story.candidate} attempts={story.attempts_made}{task}{joined}"
    return _piece(comment(told))


def _piece(data: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": True}


def _headers(story: Story) -> list[Header]:
    headers = [
        (b"x-roundhouse-candidate", (story.candidate or "none").encode("latin-1", "replace")),
        (b"x-roundhouse-attempts", str(story.attempts_made).encode()),
    ]
    if story.task is not None:
        headers.append((b"x-roundhouse-task", story.task.encode()))
    if story.joined:
        headers.append((b"x-roundhouse-joined", story.joined.encode("latin-1", "replace")))
    return headers
