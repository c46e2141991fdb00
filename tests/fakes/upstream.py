"""An OpenAI-compatible upstream on a real socket that does as a script says, byte for byte.

Plays the same scripts as the provider of kind ``scripted``, so that what is tested in memory can be tested
over TCP: resets are resets (RST), cuts are FINs within a chunked body. Records what it was asked and who
left early::

    async with FakeUpstream.of("steps: [answer]") as upstream:
        ... upstream.url ...
    assert upstream.requests[0].body["model"] == "m"
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import orjson

from router.providers.script import Script, parse_script
from router.providers.script_steps import Action, Cut, Eof, Head, NoConnection, Reset, Stall, Wait, Write
from router.providers.script_transport import ScriptPlayer

__all__ = ["FakeUpstream", "ReceivedRequest"]


@dataclass
class ReceivedRequest:
    """What came in. ``left_early`` is set once the client has closed before the answer's end."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    left_early: asyncio.Event = field(default_factory=asyncio.Event)


class FakeUpstream:
    """A server on 127.0.0.1, on a port of its own."""

    def __init__(self, script: Script) -> None:
        self.player = ScriptPlayer(script)
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        """Connections accepted so far."""
        self.open_connections = 0
        self.port = 0
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()

    @classmethod
    def of(cls, script: str) -> FakeUpstream:
        return cls(parse_script(script, "script.yaml"))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for handler in tuple(self._handlers):
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    async def until_received(self, count: int) -> None:
        """Wait until ``count`` requests have come in."""
        await self._until(lambda: len(self.requests) >= count)

    async def until_no_connection(self) -> None:
        """Wait until every connection is closed."""
        await self._until(lambda: self.open_connections == 0)

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(5), self._changed:
            await self._changed.wait_for(condition)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self.connections += 1
        self.open_connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                await self._notify()
                actions = self.player.next_actions(str((request.body or {}).get("model", "")))
                if not await self._watched(actions, request, reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass  # the stream's own callback cannot stand a cancelled handler
        finally:
            self._handlers.discard(task)
            self.open_connections -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            await self._notify()

    async def _watched(
        self,
        actions: tuple[Action, ...],
        request: ReceivedRequest,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Play the answer, watch for the client leaving; return whether the connection can be used again."""
        async with asyncio.TaskGroup() as group:
            playing = group.create_task(_play(actions, writer))
            leaving = group.create_task(_until_eof(reader))
            await asyncio.wait({playing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() and not playing.done():
                request.left_early.set()
                playing.cancel()
            leaving.cancel()
        await self._notify()
        return not playing.cancelled() and playing.result()


async def _until_eof(reader: asyncio.StreamReader) -> None:
    # The next request of a kept-alive connection comes only after this answer, so peeking loses nothing.
    with contextlib.suppress(ConnectionError):
        while not reader.at_eof() and reader.exception() is None and not reader._buffer:
            await reader._wait_for_data("watch")


async def _read_request(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    method, path, _ = first.split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(method, path, headers, orjson.loads(body) if body else None)


async def _play(actions: tuple[Action, ...], writer: asyncio.StreamWriter) -> bool:
    with contextlib.suppress(ConnectionError):
        for action in actions:
            match action:
                case Head(status, headers):
                    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers)]
                    writer.write(
                        "\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode("latin-1")
                    )
                case Write(data):
                    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
                case Wait(seconds):
                    await writer.drain()
                    await asyncio.sleep(seconds)
                case Stall():
                    await writer.drain()
                    await asyncio.get_running_loop().create_future()
                case Reset() | NoConnection():
                    await writer.drain()
                    _reset(writer)
                    return False
                case Cut():
                    return False
                case Eof():
                    writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
    return False


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
