"""What an adapter of an HTTP wire needs of a client: send one POST, read the answer piece by piece.

Two clients fit: :class:`~router.providers.direct_client.DirectClient`, which serves, and
:class:`HttpxClient` around any ``httpx.AsyncClient``, for transports that are handed in (tests, mocks, a
proxy). Knows HTTP's shapes; not chats, keys or vendors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import httpx

from router.errors import UpstreamError
from router.providers.credentials import NO_KEYS, ProviderKeys
from router.providers.transport import upstream_error

__all__ = ["ByteSource", "GeneratedBytes", "HttpxClient", "UpstreamAnswer", "UpstreamCall", "UpstreamClient"]


@dataclass(frozen=True, slots=True)
class UpstreamCall:
    """What is sent where. ``keys`` are only for removing secrets from what comes back."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    keys: ProviderKeys = NO_KEYS


class ByteSource(Protocol):
    """Bytes that come over time."""

    async def read(self, until: float) -> bytes:
        """Return the next bytes, all that are there; empty at the end.

        ``until`` is on the event loop's clock.

        Raises
        ------
        TimeoutError
            Nothing came until then.
        UpstreamError
            The bytes broke off.

        """

    async def aclose(self) -> None:
        """Let go of whatever the bytes come from; what was not read is not wanted."""


class UpstreamAnswer(ByteSource, Protocol):
    """An answer whose head has come, and its body as bytes with every coding of the transfer undone."""

    @property
    def status(self) -> int:
        """The status, 200 to 599."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers by name; names in lower case, or looked up without regard to case."""


class UpstreamClient(Protocol):
    """Sends requests; keeps connections for the next ones."""

    async def post(self, call: UpstreamCall, *, connect_s: float, until: float) -> UpstreamAnswer:
        """Send a POST and return once the answer's head has come. Redirects are not followed.

        ``connect_s`` bounds each connecting, in seconds; ``until``, on the event loop's clock, the whole.

        Raises
        ------
        TimeoutError
            There was no head until then.
        UpstreamError
            There will be none.

        """

    async def aclose(self) -> None:
        """Close the connections."""


class GeneratedBytes:
    """A :class:`ByteSource` of what a generator yields."""

    __slots__ = ("_chunks",)

    def __init__(self, chunks: AsyncGenerator[bytes]) -> None:
        self._chunks = chunks

    async def read(self, until: float) -> bytes:
        """See :class:`ByteSource`."""
        async with asyncio.timeout_at(until):
            while (chunk := await anext(self._chunks, None)) is not None:
                if chunk:
                    return chunk
        return b""

    async def aclose(self) -> None:
        """See :class:`ByteSource`."""
        await self._chunks.aclose()


class HttpxClient:
    """An :class:`UpstreamClient` around httpx. The client is its own, and closed with it."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def post(self, call: UpstreamCall, *, connect_s: float, until: float) -> UpstreamAnswer:
        """See :class:`UpstreamClient`."""
        timeout = httpx.Timeout(connect_s, read=None, write=None)
        try:
            request = self._client.build_request(
                "POST", call.url, headers=call.headers, content=call.body, timeout=timeout
            )
            async with asyncio.timeout_at(until):
                return _HttpxAnswer(await self._client.send(request, stream=True))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise upstream_error(error, answered=False) from error

    async def aclose(self) -> None:
        """See :class:`UpstreamClient`."""
        await self._client.aclose()


class _HttpxAnswer(GeneratedBytes):
    """An answer of httpx."""

    __slots__ = ("_response",)

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(_chunks(response))
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def aclose(self) -> None:
        # Shielded: a cancelled scope would otherwise cut the closing short and leave the connection to the
        # collector.
        with anyio.CancelScope(shield=True):
            await super().aclose()
            await self._response.aclose()


async def _chunks(response: httpx.Response) -> AsyncGenerator[bytes]:
    try:
        async for chunk in response.aiter_bytes():
            yield chunk
    except httpx.HTTPError as error:
        found: UpstreamError = upstream_error(error, answered=True)
        raise found from error
