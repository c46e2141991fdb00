"""A server that writes exact bytes, and the direct client in front of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from router.providers.direct_client import DirectClient
from router.providers.transport import SharedTls
from router.providers.upstream_client import UpstreamCall

__all__ = ["Answer", "Exchange", "Upstream", "always", "post", "upstream"]

Play = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    """One request as a server saw it; ``number`` counts over all connections."""

    number: int
    request: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def write(self, data: bytes, *, piece: int | None = None) -> None:
        for start in range(0, len(data), piece or len(data)):
            self.writer.write(data[start : start + (piece or len(data))])
            await self.writer.drain()
            if piece is not None:
                await asyncio.sleep(0)

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass
class Upstream:
    """A server that plays one function for each request, over connections that it keeps open."""

    play: Play
    scheme: str = "http"
    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1/chat?x=1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                request = head + await reader.readexactly(length)
                self.requests.append(request)
                await self.play(Exchange(len(self.requests), request, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()


@asynccontextmanager
async def upstream(
    play: Play, *, server_tls: ssl.SSLContext | None = None, client_tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Upstream, DirectClient]]:
    fake = Upstream(play, "https" if server_tls else "http")
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0, ssl=server_tls)
    fake.port = server.sockets[0].getsockname()[1]
    client = DirectClient(SharedTls(client_tls))
    try:
        yield fake, client
    finally:
        await client.aclose()
        server.close()
        # Lets the handlers see that their clients have left.
        for _ in range(20):
            await asyncio.sleep(0.001)


def always(data: bytes, *, piece: int | None = None, close: bool = False) -> Play:
    async def play(exchange: Exchange) -> None:
        await exchange.write(data, piece=piece)
        if close:
            exchange.writer.close()

    return play


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


async def post(
    client: DirectClient, url: str, body: bytes = b"{}", *, seconds: float = 5, **headers: str
) -> Answer:
    until = asyncio.get_running_loop().time() + seconds
    answer = await client.post(UpstreamCall(url, headers, body), connect_s=2, until=until)
    try:
        pieces = []
        while piece := await answer.read(until):
            pieces.append(piece)
        return Answer(answer.status, dict(answer.headers), b"".join(pieces))
    finally:
        await answer.aclose()
