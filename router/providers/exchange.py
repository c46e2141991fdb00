"""One chat-completions call over HTTP: request out, events in, every deadline kept.

What providers of the OpenAI wire share. Knows httpx and the wire; not which vendor, which key or whose
health.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import anyio
import httpx

from router.chat.types import ChatEvent
from router.clock import Clock
from router.errors import UpstreamError
from router.providers.answer_reader import AnswerReader
from router.providers.attempt_timer import AttemptTimer
from router.providers.base import AttemptDeadlines
from router.providers.credentials import NO_KEYS, ProviderKeys
from router.providers.transport import upstream_error
from router.providers.upstream_errors import status_error

__all__ = ["UpstreamCall", "exchange"]

MAXIMUM_ERROR_BYTES: Final = 64 << 10
_ERROR_BODY_S: Final = 5.0
_DRAIN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class UpstreamCall:
    """What is sent where. ``keys`` are only for removing secrets from what comes back."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    keys: ProviderKeys = NO_KEYS


async def exchange(
    client: httpx.AsyncClient, call: UpstreamCall, deadlines: AttemptDeadlines, clock: Clock
) -> AsyncGenerator[ChatEvent]:
    """Send ``call`` and yield the answer's events; closing the iterator closes the connection.

    Raises
    ------
    UpstreamError
        Whatever goes wrong with the upstream, as its most specific subclass.

    """
    timer = AttemptTimer(deadlines, asyncio.get_running_loop().time())
    response = await _send(client, call, deadlines, timer)
    try:
        if not response.is_success:
            body = await _error_body(response)
            raise status_error(response.status_code, response.headers, body, keys=call.keys, now=clock.wall())
        async with aclosing(_answer(response, AnswerReader(call.keys), timer)) as events:
            async for event in events:
                yield event
    finally:
        # Shielded: a cancelled scope would otherwise cut the closing short and leave the connection to the
        # collector.
        with anyio.CancelScope(shield=True):
            await response.aclose()


async def _send(
    client: httpx.AsyncClient, call: UpstreamCall, deadlines: AttemptDeadlines, timer: AttemptTimer
) -> httpx.Response:
    """Send the request and wait for the status line and headers."""
    when, phase = timer.next_deadline()
    try:
        timeout = httpx.Timeout(deadlines.connect_s, read=None, write=None)
        request = client.build_request(
            "POST", call.url, headers=call.headers, content=call.body, timeout=timeout
        )
        async with asyncio.timeout_at(when):
            return await client.send(request, stream=True)
    except TimeoutError as error:
        raise timer.error(phase) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise upstream_error(error, answered=False) from error


async def _answer(
    response: httpx.Response, reader: AnswerReader, timer: AttemptTimer
) -> AsyncGenerator[ChatEvent]:
    loop = asyncio.get_running_loop()
    async with aclosing(_chunks(response)) as chunks:
        while not reader.done and (chunk := await _next_chunk(chunks, reader, timer)) is not None:
            for event in reader.feed(chunk):
                yield event
                if event.deltas:
                    # After the yield: the time that the reader of the events took is not the upstream's.
                    timer.progressed(loop.time(), semantic=event.is_semantic)
            if reader.finished:
                timer.finished(loop.time())
            elif reader.is_json_body:
                timer.await_whole()
        for event in reader.end():
            yield event
        if reader.done:
            await _drain(chunks)


def _chunks(response: httpx.Response) -> AsyncGenerator[bytes]:
    """Return the body's bytes; httpx hides that its iterator can be closed."""
    chunks = response.aiter_bytes()
    assert isinstance(chunks, AsyncGenerator)  # noqa: S101 - for the type checker
    return chunks


async def _next_chunk(
    chunks: AsyncIterator[bytes], reader: AnswerReader, timer: AttemptTimer
) -> bytes | None:
    """Return the next bytes, or ``None`` at the end of the body.

    Whatever breaks after every choice has ended breaks nothing: it is the end of the body too.
    """
    when, phase = timer.next_deadline()
    try:
        async with asyncio.timeout_at(when):
            return await anext(chunks, None)
    except TimeoutError as error:
        failure: UpstreamError = timer.error(phase)
        cause: Exception = error
    except httpx.HTTPError as error:
        failure, cause = upstream_error(error, answered=True), error
    if reader.finished:
        return None
    raise failure from cause


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read the little that follows ``[DONE]``, so that the connection can be used again."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            await anext(chunks, None)
    except (TimeoutError, httpx.HTTPError):
        return


async def _error_body(response: httpx.Response) -> bytes:
    """Read an error's body: at most 64 KiB, for at most 5 s; what came until then is enough."""
    body = bytearray()
    try:
        async with asyncio.timeout(_ERROR_BODY_S), aclosing(_chunks(response)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= MAXIMUM_ERROR_BYTES:
                    break
    except (TimeoutError, httpx.HTTPError):
        pass
    return bytes(body[:MAXIMUM_ERROR_BYTES])
