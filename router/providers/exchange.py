"""One chat-completions call over HTTP: request out, events in, every deadline kept.

What providers of the OpenAI wire share. Knows the wire; not which client, which vendor, which key or whose
health.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import httpx

from router.chat.types import ChatEvent
from router.clock import Clock
from router.errors import UpstreamError
from router.providers.answer_reader import AnswerReader
from router.providers.answer_stream import read_answer
from router.providers.attempt_timer import AttemptTimer
from router.providers.base import AttemptDeadlines
from router.providers.upstream_client import HttpxClient, UpstreamAnswer, UpstreamCall, UpstreamClient
from router.providers.upstream_errors import status_error

__all__ = ["UpstreamCall", "exchange"]

MAXIMUM_ERROR_BYTES: Final = 64 << 10
_ERROR_BODY_S: Final = 5.0
_SUCCESS: Final = range(200, 300)


async def exchange(
    client: UpstreamClient | httpx.AsyncClient,
    call: UpstreamCall,
    deadlines: AttemptDeadlines,
    clock: Clock,
) -> AsyncGenerator[ChatEvent]:
    """Send ``call`` and yield the answer's events; closing the iterator closes the connection.

    A client of httpx is taken as it is, for what is rare or tested.

    Raises
    ------
    UpstreamError
        Whatever goes wrong with the upstream, as its most specific subclass.

    """
    timer = AttemptTimer(deadlines, asyncio.get_running_loop().time())
    sender = HttpxClient(client) if isinstance(client, httpx.AsyncClient) else client
    answer = await _send(sender, call, deadlines, timer)
    if answer.status not in _SUCCESS:
        async with aclosing(answer):
            body = await _error_body(answer)
        raise status_error(answer.status, answer.headers, body, keys=call.keys, now=clock.wall())
    async with aclosing(read_answer(answer, AnswerReader(call.keys), timer)) as events:
        async for event in events:
            yield event


async def _send(
    client: UpstreamClient, call: UpstreamCall, deadlines: AttemptDeadlines, timer: AttemptTimer
) -> UpstreamAnswer:
    """Send the request and wait for the status line and headers."""
    when, phase = timer.next_deadline()
    try:
        return await client.post(call, connect_s=deadlines.connect_s, until=when)
    except TimeoutError as error:
        raise timer.error(phase) from error


async def _error_body(answer: UpstreamAnswer) -> bytes:
    """Read an error's body: at most 64 KiB, for at most 5 s; what came until then is enough."""
    until = asyncio.get_running_loop().time() + _ERROR_BODY_S
    body = bytearray()
    try:
        while len(body) < MAXIMUM_ERROR_BYTES and (chunk := await answer.read(until)):
            body += chunk
    except (TimeoutError, UpstreamError):
        pass
    return bytes(body[:MAXIMUM_ERROR_BYTES])
