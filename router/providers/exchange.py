"""One chat-completions call over HTTP: request out, events in, every deadline kept.

What providers of the OpenAI wire share. Knows httpx and the wire; not which vendor, which key or whose
health.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import anyio
import httpx

from router.chat.types import ChatEvent
from router.clock import Clock
from router.errors import UpstreamError
from router.providers.answer_reader import AnswerReader
from router.providers.answer_stream import read_answer
from router.providers.attempt_timer import AttemptTimer
from router.providers.base import AttemptDeadlines
from router.providers.credentials import NO_KEYS, ProviderKeys
from router.providers.transport import upstream_error
from router.providers.upstream_errors import status_error

__all__ = ["UpstreamCall", "exchange"]

MAXIMUM_ERROR_BYTES: Final = 64 << 10
_ERROR_BODY_S: Final = 5.0


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
        async with aclosing(read_answer(_chunks(response), AnswerReader(call.keys), timer)) as events:
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


async def _chunks(response: httpx.Response) -> AsyncGenerator[bytes]:
    """Yield the body's bytes; closing this generator leaves the response open."""
    try:
        async for chunk in response.aiter_bytes():
            yield chunk
    except httpx.HTTPError as error:
        raise upstream_error(error, answered=True) from error


async def _error_body(response: httpx.Response) -> bytes:
    """Read an error's body: at most 64 KiB, for at most 5 s; what came until then is enough."""
    body = bytearray()
    try:
        async with asyncio.timeout(_ERROR_BODY_S), aclosing(_chunks(response)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= MAXIMUM_ERROR_BYTES:
                    break
    except (TimeoutError, UpstreamError):
        pass
    return bytes(body[:MAXIMUM_ERROR_BYTES])
