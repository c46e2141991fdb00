"""The client that serves: HTTP/1.1 to upstreams over connections of its own, kept alive between requests.

What httpx does in a millisecond this does in a few hundredths of one (docs/decisions/0010). It follows no
redirects, keeps no cookies and knows no proxies. Knows connections; not chats, keys or vendors.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import aiohappyeyeballs
import httpx

from router.errors import TimeoutPhase, UpstreamBrokenStream, UpstreamTimeout, UpstreamUnreachable
from router.providers.direct_connection import DirectConnection
from router.providers.transport import SharedTls, connect_problem
from router.providers.upstream_client import UpstreamAnswer, UpstreamCall

__all__ = ["DirectClient"]

_KEPT_ALIVE: Final = 64
_KEPT_ALIVE_S: Final = 20.0
# RFC 8305: how long one address is waited for before the next is tried beside it.
_NEXT_ADDRESS_S: Final = 0.25
_HANDSHAKE_S: Final = 60.0
_MAXIMUM_DECODED: Final = 1 << 20
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN = re.compile(r"[\x00\r\n]")
_OWN_HEADERS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "expect"})


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a URL leads, and the beginning of every request to it."""

    host: str
    port: int
    tls: bool
    start: bytes
    authorization: str | None


class DirectClient:
    """An :class:`~router.providers.upstream_client.UpstreamClient`. Used from one event loop.

    The number of connections is not bounded here (attempts are bounded by whoever admits requests), so that
    no request ever waits for one.
    """

    def __init__(self, tls: SharedTls | None = None) -> None:
        self._tls = tls or SharedTls()
        self._places: dict[str, _Place] = {}
        self._idle: dict[tuple[str, int, bool], list[DirectConnection]] = {}
        self._open: set[DirectConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def connections(self) -> int:
        """How many connections are open, idle ones too."""
        return sum(not one.lost for one in self._open)

    async def post(self, call: UpstreamCall, *, connect_s: float, until: float) -> UpstreamAnswer:
        """See :class:`~router.providers.upstream_client.UpstreamClient`.

        A kept connection that dies before a byte of the answer had been closed by the upstream: the request
        is sent once more, over a new one (RFC 9112, 9.3.1).
        """
        place = self._places.get(call.url) or self._place(call.url)
        request = _request(place, call)
        connection = self._take(place)
        if connection is not None:
            try:
                return await self._ask(connection, place, request, until)
            except UpstreamUnreachable:
                if connection.heard:
                    raise
        connection = await self._connect(place, connect_s, until)
        return await self._ask(connection, place, request, until)

    async def aclose(self) -> None:
        """Close every connection."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in tuple(self._open):
            connection.abort()
        self._open.clear()
        self._idle.clear()
        # Transports tell their protocols in the loop's next round.
        await asyncio.sleep(0)

    async def _ask(
        self, connection: DirectConnection, place: _Place, request: bytes, until: float
    ) -> UpstreamAnswer:
        try:
            connection.begin(request)
            await connection.head(until)
            return _answer(self, connection, place)
        except BaseException:
            self.discard(connection)
            raise

    # ------------------------------------------------------------------ the pool

    def _take(self, place: _Place) -> DirectConnection | None:
        """Return a kept connection, the one used last, that still is one."""
        idle = self._idle.get((place.host, place.port, place.tls))
        oldest = asyncio.get_running_loop().time() - _KEPT_ALIVE_S
        while idle:
            connection = idle.pop()
            if not connection.lost and connection.idle_since >= oldest:
                return connection
            self.discard(connection)
        return None

    def give_back(self, connection: DirectConnection, place: _Place) -> None:
        """Keep a connection whose exchange is over, where it can be used again; else close it."""
        idle = self._idle.setdefault((place.host, place.port, place.tls), [])
        if self._closed or not connection.reusable or len(idle) >= _KEPT_ALIVE:
            self.discard(connection)
            return
        connection.release()
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(_KEPT_ALIVE_S, self._close_old)

    def discard(self, connection: DirectConnection) -> None:
        """Close a connection."""
        self._open.discard(connection)
        connection.abort()

    def _close_old(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _KEPT_ALIVE_S
        for idle in self._idle.values():
            for connection in [one for one in idle if one.lost or one.idle_since < oldest]:
                idle.remove(connection)
                self.discard(connection)
        if any(self._idle.values()):
            self._sweep = loop.call_later(_KEPT_ALIVE_S / 2, self._close_old)

    # ------------------------------------------------------------------ connecting

    async def _connect(self, place: _Place, connect_s: float, until: float) -> DirectConnection:
        loop = asyncio.get_running_loop()
        connecting_until = loop.time() + connect_s
        try:
            async with asyncio.timeout_at(min(connecting_until, until)):
                return await self._opened(place, loop)
        except TimeoutError as error:
            if until <= connecting_until:
                raise
            raise UpstreamTimeout(
                f"no connection in time ({connect_s:g} s)", phase=TimeoutPhase.CONNECT
            ) from error
        except (OSError, UnicodeError) as error:
            raise UpstreamUnreachable(f"{connect_problem(error)} ({error})") from error

    async def _opened(self, place: _Place, loop: asyncio.AbstractEventLoop) -> DirectConnection:
        addresses = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        plain = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1, loop=loop
        )
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            _, connection = await loop.create_connection(
                lambda: DirectConnection(loop),
                sock=plain,
                ssl=self._tls.context() if place.tls else None,
                server_hostname=place.host if place.tls else None,
                ssl_handshake_timeout=_HANDSHAKE_S if place.tls else None,
            )
        except BaseException:
            plain.close()
            raise
        self._open.add(connection)
        return connection

    def _place(self, text: str) -> _Place:
        try:
            url = httpx.URL(text)
        except httpx.InvalidURL as error:
            raise UpstreamUnreachable(f"base_url cannot be used ({error})") from error
        if url.scheme not in {"http", "https"} or not url.host:
            raise UpstreamUnreachable(f"base_url cannot be used (no http address: {text})")
        start = b"POST %s HTTP/1.1\r\nhost: %s\r\n" % (url.raw_path, url.netloc)
        tls = url.scheme == "https"
        place = _Place(
            url.raw_host.decode("ascii"), url.port or (443 if tls else 80), tls, start, _basic(url)
        )
        self._places[text] = place
        return place


class _DirectAnswer:
    """An answer; its connection goes back to the pool once the body was read."""

    __slots__ = ("_client", "_connection", "_place", "headers", "status")

    def __init__(self, client: DirectClient, connection: DirectConnection, place: _Place) -> None:
        self._client = client
        self._connection: DirectConnection | None = connection
        self._place = place
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers

    async def read(self, until: float) -> bytes:
        connection = self._connection
        return b"" if connection is None else await connection.read(until)

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._client.give_back(connection, self._place)


class _DecodedAnswer(_DirectAnswer):
    """An answer whose body came compressed, though nobody asked for that."""

    __slots__ = ("_decoder",)

    def __init__(self, client: DirectClient, connection: DirectConnection, place: _Place) -> None:
        super().__init__(client, connection, place)
        # 32: a gzip or a zlib header, whichever comes.
        self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)

    async def read(self, until: float) -> bytes:
        decoder = self._decoder
        while not decoder.eof:
            data = decoder.unconsumed_tail or await super().read(until)
            if not data:
                return b""
            try:
                plain = decoder.decompress(data, _MAXIMUM_DECODED)
            except zlib.error as error:
                raise UpstreamBrokenStream(f"a compressed body that cannot be read ({error})") from error
            if plain:
                return plain
        while await super().read(until):
            pass
        return b""


def _answer(client: DirectClient, connection: DirectConnection, place: _Place) -> UpstreamAnswer:
    coding = connection.headers.get("content-encoding", "identity").strip().lower()
    if coding in {"", "identity"}:
        return _DirectAnswer(client, connection, place)
    if coding in {"gzip", "x-gzip", "deflate"}:
        return _DecodedAnswer(client, connection, place)
    raise UpstreamBrokenStream(f"a body with the coding {coding[:40]!r}, though none was asked for")


def _request(place: _Place, call: UpstreamCall) -> bytes:
    """Write a request; the headers that say where it goes and how it is framed are this client's own."""
    lines = []
    for name, value in call.headers.items():
        if name.lower() in _OWN_HEADERS:
            continue
        if not _NAME.fullmatch(name) or _FORBIDDEN.search(value):
            _refuse_header(name)
        lines.append(f"{name}: {value}\r\n")
    if place.authorization is not None and "authorization" not in call.headers:
        lines.append(f"authorization: {place.authorization}\r\n")
    head = "".join(lines).encode("utf-8", "surrogateescape")
    return b"%s%scontent-length: %d\r\n\r\n%s" % (place.start, head, len(call.body), call.body)


def _refuse_header(name: str) -> NoReturn:
    raise UpstreamUnreachable(
        f"the header {name[:40]!r} cannot be sent: a line break, or no name of a header"
    )


def _basic(url: httpx.URL) -> str | None:
    if not url.username and not url.password:
        return None
    pair = f"{url.username}:{url.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"
